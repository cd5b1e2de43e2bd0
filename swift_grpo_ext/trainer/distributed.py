"""What ranks must agree on before they run modules whose parameters are gathered."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def gathers_parameters(trainer: Any) -> bool:
    """True under ZeRO-3 and FSDP: every rank must call the same modules the same number of times."""
    plugin = trainer.accelerator.state.deepspeed_plugin
    return trainer.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3)


def agreed_max(value: int, device: torch.device) -> int:
    """The largest value of all ranks; a collective, so every rank must come here."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return int(shared)
