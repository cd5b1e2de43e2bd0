"""Generation batches that are not even, on two ranks: our trainer against ms-swift's on the same completions."""

import math
from types import SimpleNamespace

import pytest

from swift_grpo_ext import testing
from tests.megatron import made_up
from tests.megatron.comparing import assert_equal
from tests.megatron.runs import Order, train_all
from tests.megatron.table import FROZEN, OURS, PIPELINE

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
PARTS = {"micro_batch_size": 2}
LATER = {"steps_per_generation": 2, "global_batch_size": 8, "train_iters": 4}
IMAGES = "images on one rank alone, tower trained"
UPDATES = "two updates of a generation batch"
PIECES = "groups cut by updates"
APART = "ranks that disagree"
EMPTY, OUTPUT = "an empty completion", "what all ranks wrote"
CASES = {
    # Rows have 0, 1, 3 and 1 images: while one rank's micro-batch has none, the other's has three each.
    IMAGES: PARTS,
    "a prompt as long as a row may be": {**PARTS, "max_length": 40},
    UPDATES: {**PARTS, **FROZEN, **LATER},
    # A rank has two of a group in each. Groups that data parallelism cuts are refused by ms-swift.
    PIECES: {**LATER, "micro_batch_size": 1, "steps_per_generation": 4, "global_batch_size": 4},
    APART: {**PIPELINE, "micro_batch_size": 4},
}
PROMPT = 40  # tokens of each row
SHORTEST, LONGEST = 0, 8  # tokens, of which one completion has none
# A plugin with which the second rank finds nothing to share.
NOTHING_SHARED = """
import torch.distributed as dist
from wrapt import register_post_import_hook


def on_the_second_rank(module):
    shared = module.shared
    module.shared = lambda *given: None if dist.get_rank() else shared(*given)


register_post_import_hook(on_the_second_rank, "swift_grpo_ext.megatron.passes")
"""


@pytest.fixture(scope="module")
def runs(python, tiny, four_rows, mixed_rows, tmp_path_factory):
    """Of each case ms-swift's run and ours, and ours with an empty completion, all in the same two processes."""
    folder = tmp_path_factory.mktemp("odd")
    plugin = folder / "nothing_shared.py"
    plugin.write_text(NOTHING_SHARED, encoding="utf-8")

    def order(case, side, plugins=None):
        rows = mixed_rows if case == IMAGES else four_rows
        given = CASES[case] if plugins is None else {**CASES[case], "external_plugins": plugins}
        return Order(tiny("qwen2_5_vl"), rows, folder / side / case, given)

    stock = [order(case, "stock") for case in CASES]
    ours = [order(case, "ours", [OURS, plugin] if case == APART else [OURS]) for case in CASES]
    given = {**PARTS, "external_plugins": [OURS]}
    empty = Order(tiny("qwen2_5_vl"), four_rows, folder / EMPTY, given, (SHORTEST, LONGEST))
    # What a plugin changes stays: the case with one is the last.
    made = train_all(python, [*stock, empty, *ours], ranks=2)
    pairs = zip(made[: len(CASES)], made[len(CASES) + 1 :], strict=True)
    return {**dict(zip(CASES, pairs, strict=True)), EMPTY: made[len(CASES)], OUTPUT: made[0].output}


@pytest.mark.parametrize("case", CASES)
def test_training_is_that_of_ms_swift(case, runs):
    stock, ours = runs[case]
    assert_equal(ours, stock, steps=CASES[case].get("train_iters", 3))


def test_ranks_that_disagree_go_ms_swifts_way(runs):
    """They compute whole rows, as ms-swift does, which makes an old pass as well."""
    stock, ours = runs[APART]
    assert "micro-batch used the stock forward: ranks disagree about its layout" in runs[OUTPUT]
    assert ours.counts[1]["tokens"] * 3 == stock.counts[1]["tokens"] * 2


@pytest.mark.parametrize("case", [UPDATES, PIECES])
def test_a_later_update_has_old_log_probs_of_before_the_first(case, runs):
    _, ours = runs[case]
    moved = [
        max((sample["policy"] - sample["old"]).abs().max().item() for sample in step.values())
        for step in ours.samples
    ]
    updates = CASES[case]["steps_per_generation"]
    assert moved[::updates] == [0] * (len(moved) // updates)
    assert all(distance > 1e-4 for number, distance in enumerate(moved) if number % updates)


def test_parts_of_a_group_share_their_prompt(runs):
    """A rank has two of an update's four completions: it computes the prompt once, of completions not the last token."""
    stock, ours = runs[PIECES]
    assert stock.counts[1]["tokens"] - ours.counts[1]["tokens"] == 2 * PROMPT + 4


def test_an_empty_completion_has_a_token(runs, four_rows, monkeypatch):
    monkeypatch.setattr(made_up, "LENGTHS", [SHORTEST, LONGEST])
    samples = [SimpleNamespace(images=row["images"]) for row in testing.read_jsonl(four_rows)]
    drawn = [len(made_up.token_ids(sample, number, [0])) for sample in samples for number in range(4)]
    lengths = [len(sample["policy"]) for sample in runs[EMPTY].samples[0].values()]
    assert 0 in drawn
    assert sorted(lengths) == sorted(max(1, length) for length in drawn)
    assert all(math.isfinite(logs["grad_norm"]) for logs in runs[EMPTY].logs)
