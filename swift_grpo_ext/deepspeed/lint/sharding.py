"""What is sharded and offloaded where: hpZ, and the two offload blocks."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.deepspeed.lint.setup import Setup, table
from swift_grpo_ext.defects import DEFECTS, SWIFT
from swift_grpo_ext.findings import Problem, Severity


@table.rule(
    "ds-hpz-ranks",
    Severity.ERROR,
    symptoms="AssertionError: ... is not divisible by ...",
    cause="hpZ cuts the ranks into groups of equal size.",
)
def _hpz_ranks(setup: Setup) -> Iterator[Problem]:
    size = setup.zero.get("zero_hpz_partition_size", 1)
    if isinstance(size, int) and size > 1 and setup.ranks % min(size, setup.ranks):
        yield Problem(
            f"{setup.ranks} ranks are not divisible by zero_hpz_partition_size {size}",
            "zero_optimization.zero_hpz_partition_size",
            f"use the ranks of one node: {setup.ranks_per_node}",
        )


@table.rule(
    "ds-hpz-second-model",
    Severity.ERROR,
    symptoms="AssertionError: ZeRO parameter intra parallel group is already initialized",
    cause="DeepSpeed makes the group of the secondary partition once per model that is loaded under "
    "ZeRO-3, and asserts that it is the first.",
    defect=DEFECTS["hpz-second-model"],
)
def _hpz_second_model(setup: Setup) -> Iterator[Problem]:
    size = setup.zero.get("zero_hpz_partition_size", 1)
    if size not in (0, 1) and setup.second_model and "hpz-second-model" not in setup.healed:
        yield Problem(
            "hpZ cannot load a second model (reference, reward or teacher)",
            "zero_optimization.zero_hpz_partition_size",
            DEFECTS["hpz-second-model"].fix,
        )


@table.rule(
    "ds-hpz-offload",
    Severity.ERROR,
    symptoms="loss is 0.0 and grad_norm is NaN with zero_hpz_partition_size",
    cause="hpZ keeps a second copy of the weights on the device, and with weights offloaded to the CPU that "
    "copy is read before it is written.",
    reports=f"{SWIFT}/issues/3697",
)
def _hpz_offload(setup: Setup) -> Iterator[Problem]:
    if setup.zero.get("zero_hpz_partition_size", 1) not in (0, 1) and setup.offloads("offload_param"):
        yield Problem(
            "hpZ together with offload_param: the loss stays 0",
            "zero_optimization.zero_hpz_partition_size",
            "keep one of the two: --deepspeed ext_zero3_hpz or ext_zero3_offload",
        )


@table.rule(
    "ds-hpz-one-node",
    Severity.WARNING,
    symptoms="out of memory since zero_hpz_partition_size was set",
    cause="hpZ saves traffic between nodes at the price of a second 16-bit copy of the weights per node.",
)
def _hpz_one_node(setup: Setup) -> Iterator[Problem]:
    size = setup.zero.get("zero_hpz_partition_size", 1)
    if size not in (0, 1) and setup.ranks <= setup.ranks_per_node:
        yield Problem(
            "hpZ on one node doubles the memory of the weights and saves nothing",
            "zero_optimization.zero_hpz_partition_size",
            "--deepspeed ext_zero3",
        )


@table.rule(
    "ds-hpz-auto",
    Severity.WARNING,
    symptoms="zero_hpz_partition_size has no effect",
    cause='DeepSpeed drops every "auto" that transformers does not fill, and this key is unknown to it.',
)
def _hpz_auto(setup: Setup) -> Iterator[Problem]:
    if setup.zero.get("zero_hpz_partition_size") == "auto" and not setup.fills_hpz:
        yield Problem(
            'nobody fills zero_hpz_partition_size "auto", so it is dropped',
            "zero_optimization.zero_hpz_partition_size",
            f'write {setup.ranks_per_node}, or add --external_plugins "$(swift-grpo-ext path)"',
        )


@table.rule(
    "ds-offload-twice",
    Severity.WARNING,
    symptoms="--offload_model or --offload_optimizer frees no memory",
    cause="What DeepSpeed keeps in CPU memory is not on the GPU, so there is nothing to move for the "
    "rollout.",
)
def _offload_twice(setup: Setup) -> Iterator[Problem]:
    pairs = (("offload_optimizer", setup.offload_optimizer), ("offload_param", setup.offload_model))
    for block, asked in pairs:
        if asked and setup.offloads(block):
            flag = "--offload_optimizer" if block == "offload_optimizer" else "--offload_model"
            yield Problem(
                f"{flag} moves nothing: {block} already keeps it in CPU memory", flag, f"leave {flag} off"
            )


@table.rule(
    "ds-offload-param-stage",
    Severity.WARNING,
    symptoms="offload_param frees no memory",
    cause="Only ZeRO-3 shards weights, so only ZeRO-3 can offload them.",
)
def _offload_param_stage(setup: Setup) -> Iterator[Problem]:
    if setup.offloads("offload_param") and setup.stage < 3:
        yield Problem(
            f"offload_param does nothing in ZeRO-{setup.stage}",
            "zero_optimization.offload_param",
            "--deepspeed ext_zero3_offload",
        )


@table.rule(
    "ds-offload-param-alone",
    Severity.WARNING,
    symptoms="out of memory at the first optimizer step, although offload_param is on",
    cause="In full training the optimizer states are six times the 16-bit weights; offloading only the "
    "weights "
    "pays for PCIe in every pass and keeps the larger part on the GPU.",
)
def _offload_param_alone(setup: Setup) -> Iterator[Problem]:
    alone = setup.offloads("offload_param") and not setup.offloads("offload_optimizer")
    if alone and setup.stage == 3 and setup.full_training:
        yield Problem(
            "weights are offloaded, the optimizer states are not",
            "zero_optimization.offload_param",
            "offload the optimizer first: --deepspeed ext_zero3_offload_optimizer",
        )


@table.rule(
    "ds-zero2-offload-drops-gradients",
    Severity.ERROR,
    symptoms=(
        "parameters hardly move with zero2_offload and gradient_accumulation_steps > 1",
        "grad_norm is smaller with zero2_offload than with zero2",
    ),
    cause="ZeRO-1/2 with the optimizer on the CPU adds only the first and the last micro-batch (DeepSpeed "
    "0.15.2 to 0.18.9): at 32 steps of accumulation 30 of 32 completions are thrown away.",
    reports="A8",
    defect=DEFECTS["B1"],
)
def _zero2_offload(setup: Setup) -> Iterator[Problem]:
    loses = setup.stage in (1, 2) and setup.offloads("offload_optimizer") and setup.accumulation > 1
    if loses and setup.is_harmed_by("B1"):
        yield Problem(
            f"of {setup.accumulation} micro-batches only the first and the last count (ZeRO-{setup.stage} "
            f"with optimizer offload on DeepSpeed {setup.version})",
            "zero_optimization.offload_optimizer",
            DEFECTS["B1"].fix,
        )
