"""Nothing set, and micro-batches hold groups; every figure and every weight is that of the user's cut."""

import types
from importlib import metadata

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, PretrainedConfig

from swift_grpo_ext import testing
from swift_grpo_ext.group.cut import BatchSizes, cuts
from swift_grpo_ext.group.pack_memory import text_sizes_of
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer import group_cut
from tests.trainer.runs import STOCK, told
from tests.trainer.runs import figures_in_double as figures
from tests.trainer.unstarted_trainer import unstarted_trainer

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


FIRST = ("dapo",)  # the others run in `make test-slow`


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=() if run in FIRST else pytest.mark.slow) for run in sorted(RUNS)]
)
def test_the_automatic_cut_changes_no_figure_and_no_weight(tiny_qwen, digits, tmp_path, run):
    overrides = {**TYPED, **SGD, "save_strategy": "steps", "save_total_limit": 1, **RUNS[run]}
    overrides["save_steps"] = overrides["max_steps"]
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **overrides)
    (line,) = [message for message in messages if "Micro-batches regrouped" in message]
    assert "so that prompts are shared: 4 x 2 completions instead of 1 x 8" in line
    assert "SWIFT_GRPO_EXT_GROUP_BATCH=0" in line
    # ms-swift logs clip ratios as means over micro-batches; where completions differ in length theirs are of
    # the new ones, as the line says (4.5 in any case).
    # A step that samples nothing logs no lengths.
    log = [row for row in testing.read_logging(tmp_path / "stock") if "completions/min_length" in row]
    equal_lengths = all(row["completions/min_length"] == row["completions/max_length"] for row in log)
    of_the_cut = () if equal_lengths and metadata.version("ms-swift") >= "4.6" else ("clip_ratio/",)
    for name in stock:
        if not name.startswith(of_the_cut):
            assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    theirs, own = weights(tmp_path / "stock"), weights(tmp_path / "ours")
    apart = {name: float((own[name] - theirs[name]).abs().max()) for name in theirs}
    assert max(apart.values()) < 2e-6, max(apart, key=apart.get)


@pytest.mark.slow
def test_a_run_is_resumed_with_another_cut(tiny_qwen, digits, tmp_path):
    overrides = {**TYPED, **SGD, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    (checkpoint,) = (tmp_path / "stock").rglob("checkpoint-2")
    with told() as messages:
        ours = figures(
            tiny_qwen, digits.train, tmp_path / "ours", resume_from_checkpoint=checkpoint, **overrides
        )
    assert any("4 x 2 completions instead of 1 x 8" in message for message in messages)
    for name in stock:
        assert ours[name][-2:] == pytest.approx(stock[name][2:], abs=2e-6, rel=2e-5), name
    theirs, own = (
        load_file(next((tmp_path / run).rglob("checkpoint-4/*.safetensors"))) for run in ("stock", "ours")
    )
    assert max(float((own[name] - theirs[name]).abs().max()) for name in theirs) < 2e-6


def sizes(tiny_qwen, digits, tmp_path, **overrides):
    args = unstarted_trainer(tiny_qwen, digits.train, tmp_path, **{**TYPED, **overrides}).args
    assert args.generation_batch_size == args.per_device_train_batch_size * args.steps_per_generation
    return args.per_device_train_batch_size, args.gradient_accumulation_steps


@pytest.mark.parametrize(
    ("overrides", "switches", "expected", "line"),
    [
        ({}, {}, (4, 2), "4 x 2 completions instead of 1 x 8"),
        ({"loss_type": "bnpo"}, {}, (1, 8), "loss_type bnpo is defined per micro-batch"),
        ({"top_entropy_quantile": 0.5}, {}, (1, 8), "top_entropy_quantile is defined per micro-batch"),
        ({}, {"GROUP_BATCH": "0"}, (1, 8), ""),
        ({}, {"DISABLE": "trainer.shared_prefix"}, (1, 8), "switched off"),
        ({"max_completion_length": 8192}, {}, (2, 4), "2 x 4 completions instead of 1 x 8"),
        ({"max_completion_length": 9000}, {}, (1, 8), "no more of a group fits"),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, {}, (4, 2), ""),
        (
            {"gradient_accumulation_steps": 7, "num_generations": 7},
            {},
            (7, 1),
            "7 x 1 completions instead of 1 x 7",
        ),
        (
            {"gradient_accumulation_steps": 3, "steps_per_generation": 8},
            {},
            (1, 3),
            "3 completions per step cannot be cut into parts of a group of 4; --gradient_accumulation_steps 4",
        ),
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
    lines = [message for message in messages if "icro-batches" in message]
    assert len(lines) == bool(line)
    assert all(line in message for message in lines)


def test_one_completion_per_rank_says_which_sizes_would_share():
    args = types.SimpleNamespace(
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_generations=8,
        deepspeed=None,
        fsdp=None,
    )
    line = group_cut.cut_by_groups(group_cut.Early(None, None, args, True), current_settings())
    assert "--gradient_accumulation_steps 8 would give it all 8" in line
    assert args.gradient_accumulation_steps == 1


def test_a_pack_takes_what_fits_into_the_share(monkeypatch):
    """A stand-in for a GPU with so much memory free."""
    text = PretrainedConfig(
        hidden_size=3584,
        num_attention_heads=28,
        num_key_value_heads=4,
        num_hidden_layers=28,
        intermediate_size=18944,
        vocab_size=152064,
    )
    base = types.SimpleNamespace(config=types.SimpleNamespace(get_text_config=lambda: text))
    template = types.SimpleNamespace(get_base_model=lambda model: base, max_length=1500)
    args = types.SimpleNamespace(
        max_completion_length=1024,
        gradient_checkpointing=True,
        deepspeed=None,
        device=torch.device("cuda"),
    )
    early = group_cut.Early(torch.nn.Linear(1, 1), template, args, True)
    ways = cuts(BatchSizes(1, 8, 8), 8)
    taken = []
    for free in (0, 8, 16, 32, 64, 128):
        monkeypatch.setattr(group_cut, "_free", lambda early, device, free=free: free * 2**30)
        memory = group_cut._memory(early)
        taken.append(max((cut.sizes.batch for cut in ways if memory.holds(cut)), default=1))
    assert taken == sorted(taken)
    assert (taken[0], taken[-1]) == (1, 8)
    assert len(set(taken)) > 2
    monkeypatch.setattr(group_cut, "_free", lambda early, device: None)
    memory = group_cut._memory(early)
    assert [memory.holds(cut) for cut in ways] == [True, True, True]


def test_free_memory_leaves_room_for_what_is_yet_to_come(monkeypatch):
    """A stand-in for CUDA, which is not here: what it says, and what optimizer and vLLM will take of it."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 2**30, 80 * 2**30))
    model = torch.nn.Linear(1024, 1024, bias=False)
    args = types.SimpleNamespace(
        world_size=2,
        deepspeed=None,
        use_vllm=False,
        vllm_mode=None,
        sleep_level=0,
        vllm_gpu_memory_utilization=0.5,
    )
    early = group_cut.Early(model, None, args, False)
    alone = group_cut._free(early, torch.device("cuda"))
    assert alone == pytest.approx(60 * 2**30 - 2**20 * (8 + 4) - 2 * 2**30, abs=1)
    args.use_vllm, args.vllm_mode = True, "colocate"
    assert alone - group_cut._free(early, torch.device("cuda")) == 40 * 2**30
    args.sleep_level = 1
    assert alone - group_cut._free(early, torch.device("cuda")) == pytest.approx(3 * 2**30, abs=1)

    def unreadable(device):
        raise RuntimeError("CUDA error: not permitted")

    monkeypatch.setattr(torch.cuda, "mem_get_info", unreadable)
    assert group_cut._free(early, torch.device("cuda")) is None


@pytest.mark.parametrize(("name", "hidden"), [("gpt2", 768), ("qwen2", 4096)])
def test_sizes_have_their_usual_name_whatever_a_family_calls_them(name, hidden):
    assert text_sizes_of(AutoConfig.for_model(name)).hidden == hidden


def test_sizes_that_no_config_names_are_not_known():
    assert text_sizes_of(PretrainedConfig()) is None


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [([3e9, 2e9], 2e9), ([0.0, 2e9], 0.0), ([-5.0, 2e9], 0.0), ([None, 2e9], None), ([None, None], None)],
)
def test_the_rank_with_least_memory_decides_and_one_that_knows_nothing_for_all(monkeypatch, ranks, expected):
    asked = []
    monkeypatch.setattr(group_cut, "agreed_max", lambda value, device: asked.append(value) or 0)
    for free in ranks:
        group_cut.least(free, torch.device("cpu"))
    worst = max(asked)
    monkeypatch.setattr(group_cut, "agreed_max", lambda value, device: worst)
    assert {group_cut.least(free, torch.device("cpu")) for free in ranks} == {expected}
