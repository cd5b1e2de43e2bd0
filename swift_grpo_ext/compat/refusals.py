"""Runs that are known to crash, hang or learn nothing, told from their configuration before a model loads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.versions import installed_version

DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"


@dataclass(frozen=True)
class Run:
    """What the rules look at: the host's arguments by their own names, and versions.

    Attributes:
        arguments: Values of the host's flags.
        deepspeed: The DeepSpeed config, empty without DeepSpeed.
        world_size: Number of ranks.
        healed: Ids of the patches that are, or will be, in place.
        versions: Version by distribution, in the place of what is installed.
    """

    arguments: dict[str, Any]
    deepspeed: dict[str, Any] = field(default_factory=dict)
    world_size: int = 1
    healed: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.arguments.get(name)

    @property
    def zero(self) -> dict[str, Any]:
        """The section ``zero_optimization``."""
        return self.deepspeed.get("zero_optimization") or {}

    @property
    def stage(self) -> int | None:
        """ZeRO stage, None without DeepSpeed."""
        return int(self.zero.get("stage", 0)) if self.deepspeed else None

    @property
    def offloads_optimizer(self) -> bool:
        """The optimizer's state lies on the CPU or on a disk."""
        section = self.zero.get("offload_optimizer") or {}
        return section.get("device", "none") not in (None, "none") or bool(self.zero.get("cpu_offload"))

    def has(self, package: str, releases: str) -> bool:
        """The installed release of a package is one of `releases`."""
        found = self.versions.get(package) or installed_version(package)
        return found is not None and SpecifierSet(releases).contains(found, prereleases=True)


@dataclass(frozen=True)
class Rule:
    """A combination that must not run.

    Attributes:
        id: The defect's id.
        applies: Whether a run has the combination.
        what: What would happen, and why, in one clause; ``{names}`` are the host's arguments.
        where: The flags or versions that it comes from.
        fix: The exact change that fixes it.
        link: Report or fix upstream.
    """

    id: str
    applies: Callable[[Run], bool]
    what: str
    where: str
    fix: str
    link: str

    def refusal(self, run: Run) -> RefusedError:
        """The rule as an error that holds the run's own values."""
        values = {**run.arguments, "world_size": run.world_size}
        return RefusedError(
            f"{self.id}: {self.what.format_map(values)}",
            where=self.where.format_map(values),
            fix=f"{self.fix.format_map(values)} ({self.link})",
        )


def _one_generation_with_rewards(run: Run) -> bool:
    return run.num_generations == 1 and bool(run.reward_funcs or run.reward_model)


def _tp_does_not_divide(run: Run) -> bool:
    size = run.vllm_tensor_parallel_size or 1
    return run.vllm_mode == "colocate" and run.world_size % size != 0


def _loses_micro_batches(run: Run) -> bool:
    return (
        run.stage == 2
        and run.offloads_optimizer
        and (run.gradient_accumulation_steps or 1) > 1
        and run.has("deepspeed", ">=0.15.2,<0.19.0")
        and "B1-zero2-offload" not in run.healed
    )


def _loses_the_trace(run: Run) -> bool:
    return (
        run.stage == 3
        and not run.use_vllm
        and run.ds3_gather_for_generation is not False
        and run.has("deepspeed", "<0.19.2")
        and "A3-zero3-trace" not in run.healed
    )


def _cuts_labelled_groups(run: Run) -> bool:
    batch, group = run.per_device_train_batch_size, run.num_generations
    return run.loss_type == "real" and bool(batch and group) and batch % group != 0


RULES: tuple[Rule, ...] = (
    Rule(
        "A4",
        _one_generation_with_rewards,
        "with one completion per prompt there is nothing to compare it with: every advantage is 0",
        "num_generations {num_generations}",
        "--num_generations 2 or more, or no reward functions",
        "https://arxiv.org/abs/2402.03300",
    ),
    Rule(
        "A9",
        _tp_does_not_divide,
        "{world_size} ranks cannot be cut into tensor-parallel groups of {vllm_tensor_parallel_size}",
        "vllm_tensor_parallel_size {vllm_tensor_parallel_size}, NPROC_PER_NODE x NNODES {world_size}",
        "--vllm_tensor_parallel_size with a divisor of {world_size}",
        "https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
    ),
    Rule(
        "B1",
        _loses_micro_batches,
        "of {gradient_accumulation_steps} micro-batches per step only the first and the last would count",
        "ZeRO-2 with offload_optimizer and gradient_accumulation_steps {gradient_accumulation_steps}",
        'pip install "deepspeed>=0.19.2", or --deepspeed zero2 or zero3_offload',
        f"{DEEPSPEED}/issues/6550",
    ),
    Rule(
        "A3",
        _loses_the_trace,
        "the second rollout would stop with 'pop from an empty deque'",
        "ZeRO-3 and use_vllm false",
        'pip install "deepspeed>=0.19.2", or --ds3_gather_for_generation false',
        f"{DEEPSPEED}/pull/8043",
    ),
    Rule(
        "B11",
        lambda run: run.stage == 0 and bool(run.bf16) and run.has("deepspeed", "<0.18.6"),
        "gradients would be divided by 65536 and not zeroed between steps",
        "ZeRO-0 and bf16",
        'pip install "deepspeed>=0.18.6", or --deepspeed zero1, or no --deepspeed',
        f"{DEEPSPEED}/pull/7839",
    ),
    Rule(
        "F16",
        _cuts_labelled_groups,
        "REAL compares the completions of a group, and micro-batches of {per_device_train_batch_size} hold "
        "parts of groups of {num_generations}",
        "loss_type real, per_device_train_batch_size {per_device_train_batch_size}",
        "--per_device_train_batch_size with a multiple of {num_generations}, or SWIFT_GRPO_EXT_GROUP_BATCH=1 "
        "without SWIFT_GRPO_EXT_GROUP_BATCH_TOKENS",
        "https://arxiv.org/abs/2602.05630",
    ),
)


def refusals(run: Run) -> Iterator[RefusedError]:
    """Every reason why a run must not start."""
    return (rule.refusal(run) for rule in RULES if rule.applies(run))


def refuse(run: Run) -> None:
    """Stop a run that must not start.

    Raises:
        RefusedError: The first reason, with what fixes it.
    """
    for refusal in refusals(run):
        raise refusal


def world_size() -> int:
    """Number of ranks that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
