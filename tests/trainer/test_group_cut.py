"""Nothing set, and micro-batches hold groups; every figure and every weight is that of the user's cut."""

import types

import pytest
import torch
from safetensors.torch import load_file

from swift_grpo_ext.group.pack_memory import PackShape, TextSizes, completions_that_fit, pack_bytes
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer import group_cut
from tests.trainer.built import built
from tests.trainer.runs import STOCK, figures, told

# Adam turns the rounding of a gradient that is zero into a whole step, so SGD.
SGD = {"optim": "sgd", "learning_rate": 0.5}
TYPED = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "max_steps": 3}
RUNS = {
    "grpo": {},
    "dapo": {"loss_type": "dapo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo"},
    "two iterations": {"num_iterations": 2, "max_steps": 4},
    "two updates per generation": {"steps_per_generation": 16, "max_steps": 4},
}


def weights(output):
    (path,) = output.rglob("checkpoint-*/*.safetensors")
    return load_file(path)


@pytest.mark.parametrize("run", sorted(RUNS))
def test_the_automatic_cut_changes_no_figure_and_no_weight(tiny_qwen, digits, tmp_path, run):
    overrides = {**TYPED, **SGD, "save_strategy": "steps", "save_total_limit": 1, **RUNS[run]}
    overrides["save_steps"] = overrides["max_steps"]
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **overrides)
    (line,) = [message for message in messages if "micro-batches of" in message]
    assert "micro-batches of 1 x 8 are now 4 x 2" in line
    assert "SWIFT_GRPO_EXT_GROUP_BATCH=0" in line
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    theirs, own = weights(tmp_path / "stock"), weights(tmp_path / "ours")
    apart = {name: float((own[name] - theirs[name]).abs().max()) for name in theirs}
    assert max(apart.values()) < 2e-6, max(apart, key=apart.get)


def sizes(tiny_qwen, digits, tmp_path, **overrides):
    args = built(tiny_qwen, digits.train, tmp_path, **{**TYPED, **overrides}).args
    assert args.generation_batch_size == args.per_device_train_batch_size * args.steps_per_generation
    return args.per_device_train_batch_size, args.gradient_accumulation_steps


@pytest.mark.parametrize(
    ("overrides", "switches", "expected", "line"),
    [
        ({}, {}, (4, 2), "are now 4 x 2"),
        ({"loss_type": "bnpo"}, {}, (1, 8), "loss_type bnpo is defined per micro-batch"),
        ({"top_entropy_quantile": 0.5}, {}, (1, 8), "top_entropy_quantile is defined per micro-batch"),
        ({}, {"GROUP_BATCH": "0"}, (1, 8), ""),
        ({}, {"DISABLE": "trainer.shared_prefix"}, (1, 8), "switched off"),
        ({}, {"GROUP_BATCH_TOKENS": "32"}, (2, 4), "are now 2 x 4"),
        ({}, {"GROUP_BATCH_TOKENS": "8"}, (1, 8), "no more of a group fits"),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, {}, (4, 2), ""),
        ({"gradient_accumulation_steps": 7, "num_generations": 7}, {}, (7, 1), "are now 7 x 1"),
    ],
)
def test_who_keeps_the_users_cut(
    tiny_qwen, digits, tmp_path, monkeypatch, overrides, switches, expected, line
):
    for name, value in switches.items():
        monkeypatch.setenv(f"SWIFT_GRPO_EXT_{name}", value)
    current_settings.cache_clear()
    with told() as messages:
        assert sizes(tiny_qwen, digits, tmp_path, **{"max_completion_length": 16, **overrides}) == expected
    lines = [message for message in messages if "micro-batches" in message]
    assert len(lines) == bool(line)
    assert all(line in message for message in lines)


def test_one_completion_per_rank_says_which_sizes_would_share():
    args = types.SimpleNamespace(
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_generations=8,
    )
    line = group_cut.cut_by_groups(group_cut.Early(None, None, args, True), current_settings())
    assert "--gradient_accumulation_steps 8 would give it all 8" in line
    assert args.gradient_accumulation_steps == 1


SEVEN = TextSizes(28, 3584, 3584, 512, 18944, 152064, attending=28)


def test_a_pack_takes_what_fits_into_the_share():
    shape = PackShape(SEVEN, prompt=1500, completion=1024, trained="lora")
    counts = [completions_that_fit(shape, 8, free * 2**30, 0.5) for free in (0, 8, 16, 32, 64)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 8
    for free, count in zip((16, 32), counts[2:4], strict=True):
        assert pack_bytes(shape, count) <= 0.5 * free * 2**30
        assert count == 8 or pack_bytes(shape, count + 1) > 0.5 * free * 2**30


def test_free_memory_leaves_room_for_what_is_yet_to_come(monkeypatch):
    """A stand-in for CUDA, which is not here: what it says, and what optimizer and vLLM will take of it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 2**30, 80 * 2**30))
    model = torch.nn.Linear(1024, 1024, bias=False)
    args = types.SimpleNamespace(
        world_size=1,
        deepspeed=None,
        use_vllm=False,
        vllm_mode=None,
        sleep_level=0,
        vllm_gpu_memory_utilization=0.5,
    )
    early = group_cut.Early(model, None, args, False)
    alone = group_cut._free(early, torch.device("cpu"))
    assert alone == 60 * 2**30 - 2**20 * (8 + 4) - group_cut.BESIDE
    args.use_vllm, args.vllm_mode = True, "colocate"
    assert alone - group_cut._free(early, torch.device("cpu")) == 40 * 2**30
    args.sleep_level = 1
    assert alone - group_cut._free(early, torch.device("cpu")) == group_cut.ASLEEP

    def unreadable(device):
        raise RuntimeError("CUDA error: not permitted")

    monkeypatch.setattr(torch.cuda, "mem_get_info", unreadable)
    assert group_cut._free(early, torch.device("cpu")) is None
