"""A3 and B1: how they come about and how they are cured. The real runs are in `test_old_deepspeed`."""

import dataclasses

import pytest
import torch
from compat.stand_ins import OldOffload, OldOptimizer
from torch import nn

from swift_grpo_ext.compat import zero2_offload, zero3_trace


def on_stand_in(patch, target):
    """The patch for a stand-in with the defect, which the installed DeepSpeed no longer has."""
    return dataclasses.replace(patch, target=f"{OldOffload.__module__}:{target}", after="")


def step_with_a_rollout():
    """The hooks come off for the rollout and are put on again while DeepSpeed's coordinator records a trace.

    Returns:
        The coordinator after the step: DeepSpeed's own, on one rank.
    """
    from deepspeed.runtime.zero import partitioned_param_coordinator as module

    coordinator = module.PartitionedParameterCoordinator(1, 1, 1, None, module.InflightParamRegistry())
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    offload = OldOffload(model, coordinator)
    offload._register_deepspeed_module(model)
    coordinator.reset_step()
    assert coordinator.is_record_trace()
    for layer in model:
        coordinator.record_module(layer)
    offload._register_deepspeed_module(model)
    coordinator.reset_step()
    return coordinator


def test_trace_after_a_rollout(prove, monkeypatch):
    zero = "deepspeed.runtime.zero"
    monkeypatch.setattr(f"{zero}.partitioned_param_coordinator.assert_ints_same_as_other_ranks", id)
    monkeypatch.setattr(f"{zero}.parameter_offload.DeepSpeedZeRoOffload", OldOffload)  # the probe reads it
    proof = prove(on_stand_in(zero3_trace.fix, "OldOffload._register_deepspeed_module"))
    with pytest.raises(IndexError, match="pop from an empty deque"):
        step_with_a_rollout()
    proof.on()
    assert step_with_a_rollout().is_record_trace(), "the next forward records it anew"
    proof.off()
    proof.drift()


def test_sum_over_micro_batches(prove, monkeypatch):
    monkeypatch.setattr("deepspeed.runtime.zero.stage_1_and_2.DeepSpeedZeroOptimizer", OldOptimizer)
    proof = prove(on_stand_in(zero2_offload.fix, "OldOptimizer.async_accumulate_grad_in_cpu_via_gpu"))
    each_its_own_column = torch.eye(4)
    assert OldOptimizer().step(each_its_own_column).tolist() == [1, 0, 0, 1]
    proof.on()
    assert OldOptimizer().step(each_its_own_column).tolist() == [1, 1, 1, 1]
    zero1 = OldOptimizer(stage=1)
    assert [zero1.step(each_its_own_column).tolist() for _ in range(2)] == [[1, 1, 1, 1]] * 2
    proof.off()
    proof.drift()


def test_the_probes_find_in_the_installed_release_what_the_table_says_of_it():
    for patch, probe in ((zero3_trace.fix, zero3_trace.fix.probe), (zero2_offload.fix, zero2_offload.probe)):
        assert probe() == (not patch.defect.absent_because())
