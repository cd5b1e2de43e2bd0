"""M10: with pipeline parallelism the KL in rewards needs log-probs that only the last stage has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

TARGET = "swift.megatron.trainers.grpo_trainer:MegatronGRPOTrainer._compute_kl_from_batches"


@patch(
    "M10",
    TARGET,
    fingerprint="self, mini_batch_data, local_num_samples, rollout_group",
    probe=lambda: not in_source(TARGET, "pipeline"),
    remove_when="ms-swift hands the log-probs of the last stage to the others before it takes their KL",
)
def fix(
    kl: Callable[..., Tensor],
    trainer: Any,
    mini_batch_data: list[dict[str, Any]],
    local_num_samples: int,
    rollout_group: ProcessGroup,
) -> Tensor:
    """Broadcast the last stage's log-probs for this call; each rank takes the KL of its own completions."""
    import torch
    import torch.distributed as dist
    from megatron.core import mpu

    last = mpu.get_pipeline_model_parallel_last_rank()
    stages = mpu.get_pipeline_model_parallel_group()

    def of_last_stage(logps: Tensor | None, mask: Tensor) -> Tensor:
        known = torch.zeros(mask.shape, device=mask.device) if logps is None else logps.float().contiguous()
        dist.broadcast(known, last, group=stages)
        return known

    if mpu.get_pipeline_model_parallel_world_size() == 1:
        return kl(trainer, mini_batch_data, local_num_samples, rollout_group)
    batches = []
    for batch in mini_batch_data:
        own = batch["grpo_batch"]
        old = of_last_stage(own.old_per_token_logps, own.completion_mask)
        reference = of_last_stage(own.ref_per_token_logps, own.completion_mask)
        batches.append({"grpo_batch": replace(own, old_per_token_logps=old, ref_per_token_logps=reference)})
    return kl(trainer, batches, local_num_samples, rollout_group)
