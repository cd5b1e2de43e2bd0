"""What ranks must agree on before they run modules whose parameters are gathered."""

from __future__ import annotations

import torch
import torch.distributed as dist

from swift_grpo_ext.trainer.host import Host


def gathers_parameters(host: Host) -> bool:
    """True under ZeRO-3 and FSDP: every rank must call the same modules the same number of times."""
    plugin = host.accelerator.state.deepspeed_plugin
    return bool(host.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3))


def gathers_in_sampling(host: Host) -> bool:
    """True where transformers generates with parameters that are gathered module by module."""
    args = host.args
    if args.use_vllm or not gathers_parameters(host):
        return False
    return bool(host.is_fsdp_enabled or not args.ds3_gather_for_generation)


def agreed_max(value: int, device: torch.device) -> int:
    """The largest value of all ranks; a collective, so every rank must come here."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return int(shared)
