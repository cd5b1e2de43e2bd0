"""Which runs are held against each other, and where a difference is part of a definition."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Options = dict[str, Any]

FAMILIES = ("qwen2_5_vl", "ovis2")

# Two prompts of four completions each per step; `cut` says in how many micro-batches.
BASE: Options = {
    "num_generations": 4,
    "max_completion_length": 12,
    "max_steps": 2,
    "beta": 0.04,
    "optim": "sgd",  # Adam turns the sign of a gradient of 1e-9 into a full step
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "lr_scheduler_type": "constant",
    "warmup_ratio": 0.0,
    "reward_funcs": "selftest",
    "save_strategy": "steps",
}
LOSSES: dict[str, Options] = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "fipo": {"loss_type": "fipo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "gspo_token": {"loss_type": "grpo", "importance_sampling_level": "sequence_token"},
}
BNPO = "bnpo divides by the tokens of the micro-batch"
REAL = "real compares the completions of a group, so a micro-batch holds whole groups"
KERNEL = "SDPA by segments stands in for flash attention, which needs a GPU"
# A ratio off 1 by one rounding counts as clipped where the update is against it.
ON_POLICY: Options = {"epsilon": 0.0, "max_steps": 3}
LORA: Options = {"tuner_type": "lora", "learning_rate": 1.0}
OLD_PASS = {"SWIFT_GRPO_EXT_DISABLE": "trainer.skip_old_logps"}


@dataclass(frozen=True)
class Case:
    """Two runs that must agree, or one run and what must be zero in it."""

    name: str  # shown in the table, unique
    one: Options  # of the first run, on top of `BASE`
    other: Options | None = None  # of the second; None for a run that is measured by itself
    ranks: int = 1  # processes of the second run
    resume: int = 0  # the second run starts from the first one's checkpoint of this step
    measures: tuple[str, ...] = ()  # of the first run what must be zero, where there is no second
    variables: dict[str, str] = field(default_factory=dict)
    differs: str = ""  # why the two may differ, if the difference is part of a definition
    note: str = ""  # said beside the verdict


def cut(size: int, accumulation: int = 1) -> Options:
    """A step of `size` x `accumulation` completions per rank."""
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}


def cases() -> Iterator[Case]:
    """Every equality, in the order of the table."""
    for name, loss in LOSSES.items():
        differs = BNPO if name == "bnpo" else ""
        yield Case(f"{name}: 1 x 8 = 8 x 1", {**loss, **cut(8)}, {**loss, **cut(1, 8)}, differs=differs)
    real = {"loss_type": "real"}
    yield Case("real: 4 x 2 = 8 x 1", {**real, **cut(8)}, {**real, **cut(4, 2)}, note=REAL)
    for name in ("grpo", "dapo"):
        twice = {**LOSSES[name], "num_iterations": 2, "max_steps": 4}
        yield Case(f"{name}, num_iterations 2: 2 x 4 = 8 x 1", {**twice, **cut(8)}, {**twice, **cut(2, 4)})
        one, other = {**LOSSES[name], **cut(8)}, {**LOSSES[name], **cut(4)}
        yield Case(f"{name}: 2 ranks = 1 rank", one, other, ranks=2)
    some = {"reward_funcs": "selftest_some", "loss_type": "dapo"}
    yield Case("dapo, some unscored: 1 x 8 = 8 x 1", {**some, **cut(8)}, {**some, **cut(1, 8)})
    yield Case("LoRA: 1 x 8 = 8 x 1", {**LORA, **cut(8)}, {**LORA, **cut(1, 8)})
    for name, options in (("", {}), ("LoRA ", LORA)):
        steps = {**options, **cut(8), "max_steps": 4, "save_steps": 2}
        yield Case(f"{name}resumed at step 2 = uninterrupted", steps, steps, resume=2)
    packed = {**cut(8), "padding_free": True, "attn_impl": "selftest_segments"}
    yield Case("padding_free = padded", cut(8), packed, note=KERNEL)
    lora = {**cut(8), **ON_POLICY, **LORA}
    yield Case("LoRA off = a separate reference", lora, measures=("reference",))
    ratio = ("log_ratio", "clipped")
    yield Case("importance ratio is 1: full", {**cut(8), **ON_POLICY}, measures=ratio)
    yield Case("importance ratio is 1: LoRA", lora, measures=ratio)
    yield Case("importance ratio is 1: LoRA, dropout .2", {**lora, "lora_dropout": 0.2}, measures=ratio)
    penalty = {**lora, "lora_dropout": 0.2, "kl_in_reward": True}
    yield Case("importance ratio is 1: LoRA, dropout .2, KL in rewards", penalty, measures=ratio)
    yield Case("importance ratio is 1: LoRA, with an old pass", lora, measures=ratio, variables=OLD_PASS)
