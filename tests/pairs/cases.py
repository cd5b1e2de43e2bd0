"""Which runs are compared with each other, and where a difference is part of a definition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swift_grpo_ext.losses import LOSSES as TABLE
from swift_grpo_ext.losses import why_sizes_matter

Options = dict[str, Any]

FAMILIES = ("qwen2_5_vl", "ovis2")  # those with a template of this package

LIGER_ONLY = {"luspo", "vespo"}  # ms-swift has them with --use_liger_kernel alone
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
    "reward_funcs": "by_text",
    "save_strategy": "steps",
}
_TYPES = [name for name, loss in TABLE.items() if not loss.whole_groups and name not in LIGER_ONLY]
LOSSES: dict[str, Options] = {
    **{name: {"loss_type": name} for name in _TYPES},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "gspo_token": {"loss_type": "grpo", "importance_sampling_level": "sequence_token"},
}
# A ratio off 1 by one rounding counts as clipped where the update is against it.
ON_POLICY: Options = {"epsilon": 0.0, "max_steps": 3}
LORA: Options = {"tuner_type": "lora", "learning_rate": 1.0}
RATIO = ("log_ratio", "clipped")


@dataclass(frozen=True)
class Case:
    """Two runs that must agree, or one run and what must be zero in it."""

    name: str  # unique
    one: Options  # of the first run, on top of `BASE`
    other: Options | None = None  # of the second; None for a run that is measured by itself
    ranks: int = 1  # processes of the second run
    resume: int = 0  # the second run starts from the first one's checkpoint of this step
    measures: tuple[str, ...] = ()  # of the first run what must be zero, where there is no second
    disabled: str = ""  # parts of this package that are switched off
    differs: str = ""  # why the two may differ, if the difference is part of a definition
    megatron: bool = False  # the second run is one of ``megatron rlhf``


_OF_TRANSFORMERS = """
    use_cpu attn_impl use_vllm per_device_train_batch_size gradient_accumulation_steps max_steps
    learning_rate optim lr_scheduler_type warmup_ratio save_strategy
"""
# `BASE` by the names of ``megatron rlhf``, without what a GPU alone has, in micro-batches that become groups.
MEGATRON: Options = {
    **dict.fromkeys(_OF_TRANSFORMERS.split()),
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "train_iters": 2,
    "lr": 0.1,
    "lr_decay_style": "constant",
    "lr_warmup_fraction": 0,
    "optimizer": "sgd",
    "sgd_momentum": 0,
    "use_distributed_optimizer": False,
    "padding_free": False,  # kernels for rows end to end take no single precision
    "attention_backend": "unfused",
    "vit_attn_impl": "sdpa",
    "recompute_granularity": "none",
    "gradient_accumulation_fusion": False,
    "vllm_mode": "colocate",
    "add_version": False,
    "split_dataset_ratio": 0,
    "dataloader_pin_memory": False,
    "no_save_optim": True,
    "no_save_rng": True,
    "report_to": "tensorboard",
}


def cut(size: int, accumulation: int = 1) -> Options:
    """A step of `size` x `accumulation` completions per rank."""
    return {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}


def megatron_cases() -> Iterator[Case]:
    """``megatron rlhf`` in each layout against ``swift rlhf``, which trains all of the model there."""
    layouts: dict[str, Options] = {
        "TP 1": {},
        "TP 2": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
        "PP 2": {"pipeline_model_parallel_size": 2},
    }
    trained = {"freeze_vit": False, "freeze_aligner": False}
    for name, layout in layouts.items():
        ranks = 2 if layout else 1
        title = f"Megatron, {name} = transformers"
        yield Case(title, trained | cut(8), trained | layout, ranks, megatron=True)


def cases() -> Iterator[Case]:
    """Every equality without Megatron."""
    some = {"reward_funcs": "by_some_text", "loss_type": "dapo"}
    finest = {**LOSSES, "dapo, some unscored": some, "LoRA": LORA}
    for name, options in finest.items():
        differs = why_sizes_matter(
            options.get("loss_type", "grpo"), with_liger=False, top_entropy_quantile=1.0
        )
        yield Case(f"{name}: 1 x 8 = 8 x 1", options | cut(8), options | cut(1, 8), differs=differs)
    # It compares the completions of a group.
    real = {"loss_type": "real"}
    yield Case("real, of whole groups: 4 x 2 = 8 x 1", real | cut(8), real | cut(4, 2))
    for name in ("grpo", "dapo"):
        twice = {**LOSSES[name], "num_iterations": 2, "max_steps": 4}
        yield Case(f"{name}, num_iterations 2: 2 x 4 = 8 x 1", twice | cut(8), twice | cut(2, 4))
        yield Case(f"{name}: 2 ranks = 1 rank", LOSSES[name] | cut(8), LOSSES[name] | cut(4), ranks=2)
    for name, options in (("", {}), ("LoRA ", LORA)):
        steps = {**options, **cut(8), "max_steps": 4, "save_steps": 2}
        yield Case(f"{name}resumed at step 2 = uninterrupted", steps, steps, resume=2)
    # Flash attention needs a GPU.
    packed = {**cut(8), "padding_free": True, "attn_impl": "segments"}
    yield Case("padding_free, by SDPA of segments = padded", cut(8), packed)
    lora = {**cut(8), **ON_POLICY, **LORA}
    dropout = {**lora, "lora_dropout": 0.2}
    yield Case("LoRA off = a separate reference", lora, measures=("reference",))
    yield Case("importance ratio is 1: full", {**cut(8), **ON_POLICY}, measures=RATIO)
    yield Case("importance ratio is 1: LoRA", lora, measures=RATIO)
    yield Case("importance ratio is 1: LoRA, dropout .2", dropout, measures=RATIO)
    penalty = {**dropout, "kl_in_reward": True}
    yield Case("importance ratio is 1: LoRA, dropout .2, KL in rewards", penalty, measures=RATIO)
    old = "trainer.skip_old_logps"
    yield Case("importance ratio is 1: LoRA, with an old pass", lora, measures=RATIO, disabled=old)
