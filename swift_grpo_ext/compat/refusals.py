"""Refuse runs known to crash, hang or learn nothing, by their configuration, before a model loads."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.findings import Look, Problem, RuleTable, Severity
from swift_grpo_ext.losses import loss_named


@dataclass(frozen=True)
class RefusableRun:
    """Input of the rules: ms-swift's arguments by their own names, and versions."""

    arguments: dict[str, Any]  # values of ms-swift's flags
    deepspeed: dict[str, Any] = field(default_factory=dict)  # the DeepSpeed config, empty without DeepSpeed
    world_size: int = 1  # number of ranks
    healed: frozenset[str] = frozenset()  # ids of the patches that are, or will be, in place
    # versions by distribution, in place of the installed ones
    versions: Mapping[str, str | None] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.arguments.get(name)

    @property
    def zero(self) -> dict[str, Any]:
        """The ``zero_optimization`` section of the DeepSpeed config."""
        return self.deepspeed.get("zero_optimization") or {}

    @property
    def stage(self) -> int | None:
        """ZeRO stage, None without DeepSpeed."""
        return int(self.zero.get("stage", 0)) if self.deepspeed else None

    @property
    def offloads_optimizer(self) -> bool:
        """True if the optimizer's state is on the CPU or on disk."""
        section = self.zero.get("offload_optimizer") or {}
        return section.get("device", "none") not in (None, "none") or bool(self.zero.get("cpu_offload"))

    def is_harmed_by(self, defect: str) -> bool:
        """True if the installed releases have a defect that none of our patches fixes."""
        return DEFECTS[defect].harms(self.versions, self.healed)


table: RuleTable[RefusableRun] = RuleTable()
RULES = table.rules
# Tuners with several named adapters per model; ms-swift builds all others, also users' own, only once.
_NAMED_ADAPTERS = {None, "full", "lora", "longlora", "adalora", "vera", "boft", "fourierft", "bone"}


def _refuses(defect: str) -> Callable[[Look[RefusableRun]], Look[RefusableRun]]:
    return table.rule(defect, Severity.ERROR, defect=DEFECTS[defect])


def _has(defect: str, where: str) -> Problem:
    """A problem in the defect's own words."""
    return Problem(DEFECTS[defect].what, where, DEFECTS[defect].fix)


@_refuses("A4")
def _one_generation_with_rewards(run: RefusableRun) -> Iterator[Problem]:
    if run.num_generations == 1 and (run.reward_funcs or run.reward_model):
        yield _has("A4", "num_generations 1")


@_refuses("A9")
def _tp_does_not_divide(run: RefusableRun) -> Iterator[Problem]:
    size = run.vllm_tensor_parallel_size or 1
    ranks = run.world_size
    if run.vllm_mode == "colocate" and ranks % size != 0:
        yield Problem(
            f"{ranks} ranks cannot be cut into tensor-parallel groups of {size}",
            f"vllm_tensor_parallel_size {size}, NPROC_PER_NODE x NNODES {ranks}",
            f"--vllm_tensor_parallel_size with a divisor of {ranks}",
        )


@_refuses("B1")
def _loses_micro_batches(run: RefusableRun) -> Iterator[Problem]:
    micro_batches = run.gradient_accumulation_steps or 1
    loses = run.stage in (1, 2) and run.offloads_optimizer and micro_batches > 1
    if loses and run.is_harmed_by("B1"):
        yield Problem(
            f"of {micro_batches} micro-batches per step only the first and the last would count",
            f"ZeRO-{run.stage} with offload_optimizer and gradient_accumulation_steps {micro_batches}",
            DEFECTS["B1"].fix,
        )


@_refuses("A3")
def _loses_the_trace(run: RefusableRun) -> Iterator[Problem]:
    gathers = run.stage == 3 and not run.use_vllm and run.ds3_gather_for_generation is not False
    if gathers and run.is_harmed_by("A3"):
        yield _has("A3", "ZeRO-3 and use_vllm false")


@_refuses("F16")
def _cuts_labelled_groups(run: RefusableRun) -> Iterator[Problem]:
    batch = run.per_device_train_batch_size
    group = run.num_generations
    whole = loss_named(run.loss_type or "grpo").whole_groups
    if whole and batch and group and batch % group != 0:
        yield Problem(
            f"REAL compares the completions of a group, and micro-batches of {batch} hold parts of groups of "
            f"{group}",
            f"loss_type {run.loss_type}, per_device_train_batch_size {batch}",
            f"--per_device_train_batch_size with a multiple of {group}",
        )


@_refuses("F18")
def _streams_rows(run: RefusableRun) -> Iterator[Problem]:
    if run.streaming:
        yield Problem(
            "a group of a stream would hold different prompts", "--streaming true", DEFECTS["F18"].fix
        )


@_refuses("F22")
def _ignores_the_environment(run: RefusableRun) -> Iterator[Problem]:
    if (run.gym_env or run.use_gym_env) and not run.use_vllm:
        named = f"gym_env {run.gym_env}" if run.gym_env else "use_gym_env true"
        yield _has("F22", f"{named}, use_vllm false")


@_refuses("F28")
def _does_not_shard(run: RefusableRun) -> Iterator[Problem]:
    if run.fsdp and run.use_cpu:
        yield _has("F28", f"fsdp {run.fsdp}, no GPU in use")


@_refuses("F37")
def _has_no_schedule(run: RefusableRun) -> Iterator[Problem]:
    names = ("chord_mu_warmup_steps", "chord_mu_decay_steps", "chord_mu_peak", "chord_mu_valley")
    missing = [name for name in names if getattr(run, name) is None]
    if run.chord_sft_dataset and missing:
        yield _has("F37", f"chord_sft_dataset without {', '.join(missing)}")


@_refuses("F48")
def _has_one_adapter(run: RefusableRun) -> Iterator[Problem]:
    if run.ref_adapters and run.tuner_type not in _NAMED_ADAPTERS:
        yield _has("F48", f"ref_adapters, tuner_type {run.tuner_type}")


def refusals(run: RefusableRun) -> Iterator[RefusedError]:
    """Every reason why a run must not start."""
    for finding in table.findings(run):
        what = f"{finding.rule}: {finding.what}"
        fix = f"{finding.fix} ({finding.link})"
        yield RefusedError(what, where=finding.where, fix=fix)


def refuse(run: RefusableRun) -> None:
    """Raise the first reason why a run must not start."""
    for refusal in refusals(run):
        raise refusal


def world_size() -> int:
    """Number of ranks that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
