"""Groups move between ranks that talk over gloo: each sample has one rank, and ranks have about as many tokens."""

import json
from types import SimpleNamespace

import pytest

from swift_grpo_ext.trainer import balance
from tests.forked import fork_ranks

# Two steps of two groups of two completions on each rank, of so many tokens.
LENGTHS = [[[9, 9], [8, 8], [1, 1], [2, 2]], [[1, 2], [1, 1], [1, 2], [1, 1]]]
RANK = """
import json, sys
from contextlib import nullcontext
from types import SimpleNamespace
import torch.distributed as dist
from accelerate import PartialState
from swift_grpo_ext.trainer import balance
from swift_grpo_ext.trainer.samples import VisionSample

state = PartialState(cpu=True, backend="gloo")
rank = dist.get_rank()
balance.encode_sample = lambda sample, template: {"input_ids": [0] * (5 + len(sample.response_token_ids))}
samples = [
    VisionSample(
        [{"role": "user", "content": f"{rank} {number}"}], images=[bytes([rank, number])],
        response_token_ids=[7] * length, prompt_id=f"{rank} {number}",
    )
    for number, lengths in enumerate(json.loads(sys.argv[1])[rank])
    for length in lengths
]
host = SimpleNamespace(
    num_generations=2,
    args=SimpleNamespace(
        per_device_train_batch_size=2, gradient_accumulation_steps=2, steps_per_generation=4
    ),
    accelerator=state,
    template=None,
    _template_context=lambda template: nullcontext(),
)
got = balance.balanced(host, samples, shares_prompts=True)
print("GOT", json.dumps([[s.prompt_id, len(s.response_token_ids), list(s.images[0])] for s in got]))
dist.destroy_process_group()
"""


def exchanged(tmp_path, lengths):
    """Prompt of each completion that a rank then has, and the completions' tokens, by rank."""
    (tmp_path / "rank.py").write_text(RANK)
    ended = fork_ranks(tmp_path / "rank.py", [json.dumps(lengths)], ranks=len(lengths), timeout=120)
    assert not any(ended.codes), ended.written
    got = [json.loads(text.split("GOT ")[1].splitlines()[0]) for text in ended.written]
    assert all(prompt == f"{image[0]} {image[1]}" for rank in got for prompt, _, image in rank)
    return [[(prompt, tokens) for prompt, tokens, _ in rank] for rank in got]


@pytest.mark.two_ranks
def test_whole_groups_move_within_their_step_and_the_largest_is_first(tmp_path):
    first, second = exchanged(tmp_path, LENGTHS)
    assert first[:4] == [("0 0", 9), ("0 0", 9), ("1 1", 1), ("1 1", 1)]
    assert second[:4] == [("0 1", 8), ("0 1", 8), ("1 0", 1), ("1 0", 2)]
    # The second step is even: nothing moves.
    assert first[4:] == [("0 3", 2), ("0 3", 2), ("0 2", 1), ("0 2", 1)]
    assert second[4:] == [("1 2", 1), ("1 2", 2), ("1 3", 1), ("1 3", 1)]


def host(**given):
    """As much of a trainer as the decision reads."""
    args = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "top_entropy_quantile": 1.0,
        "dynamic_sample": False,
        "async_generate": False,
    }
    trainer = {
        "num_generations": 4,
        "loss_type": "grpo",
        "use_liger_loss": False,
        "multi_turn_scheduler": None,
        "enable_server_multi_turn": False,
        "template": SimpleNamespace(sequence_parallel_size=given.pop("sequence_parallel_size", 1)),
    }
    args |= {name: given.pop(name) for name in list(given) if name in args}
    return SimpleNamespace(**{**trainer, **given}, args=SimpleNamespace(**args))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        ({"sequence_parallel_size": 2}, "sequence parallel"),
        ({"dynamic_sample": True}, "dynamic sampling"),
        ({"multi_turn_scheduler": "a scheduler"}, "turns"),
        ({"enable_server_multi_turn": True}, "turns"),
        ({"async_generate": True}, "another batch"),
        ({"loss_type": "bnpo"}, "per micro-batch"),
        ({"loss_type": "dapo"}, ""),
        ({"loss_type": "dapo", "use_liger_loss": True}, "per micro-batch"),
        ({"top_entropy_quantile": 0.5}, "per micro-batch"),
    ],
    ids=str,
)
def test_where_groups_stay(given, why):
    reason = balance.why_not_balanced(host(**given))
    assert why in reason
    assert bool(why) == bool(reason)


@pytest.mark.parametrize(
    ("ranks", "given", "why"),
    [
        (1, {}, "one rank"),
        (2, {}, ""),
        (2, {"gradient_accumulation_steps": 1}, "one prompt"),
        (2, {"steps_per_generation": 3}, "one prompt"),  # a step has micro-batches of two generations
        (2, {"num_generations": 3}, "parts of prompts"),
    ],
    ids=str,
)
def test_where_there_is_nothing_to_move(ranks, given, why, monkeypatch):
    monkeypatch.setattr(balance, "is_alone", lambda: ranks == 1)
    reason = balance.why_nothing_moves(host(**given))
    assert why in reason
    assert bool(why) == bool(reason)
