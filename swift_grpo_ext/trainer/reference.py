"""A reference or teacher that is the policy's own checkpoint: equal at the start, on every rank."""

from typing import Any

import torch
from accelerate.utils import gather_object
from jaxtyping import Shaped
from torch import Tensor, nn

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.trainer.host import Host, base_model
from swift_grpo_ext.trainer.noise import noise_in, noise_of_run

_OWN = (
    "embed_tokens.weight",
    "lm_head.weight",
)  # each model draws rows of new tokens (--new_special_tokens) for itself


def starts_as_policy(host: Host, model: nn.Module | None) -> bool:
    """Whether another model of the run is the checkpoint that the policy starts from."""
    if model is None or host.args.resume_from_checkpoint or host.state.global_step:
        return False
    ours, theirs = (getattr(base_model(host, one), "model_info", None) for one in (host.model, model))
    return bool(ours and theirs and ours.model_dir == theirs.model_dir)


def require_equal_start(host: Host) -> None:
    """Compare the reference model and the teacher with the policy, where they are its own checkpoint.

    Raises:
        RefusedError: On some rank they differ; on all ranks, with the rank.
    """
    others: dict[str, Any] = {"reference model": host.ref_model, "teacher": host.teacher_model}
    for name, model in others.items():
        if not starts_as_policy(host, model):
            continue
        words = difference(base_model(host, host.model), base_model(host, model))
        of_ranks: list[str] = gather_object([words])
        if any(of_ranks):
            raise RefusedError(
                f"the {name} has other weights than the policy, though both are one checkpoint",
                where="; ".join(f"rank {rank}: {words}" for rank, words in enumerate(of_ranks) if words),
                fix="zeros come from loading on rank 0 alone with nothing that hands the weights on "
                "(cpu_ram_efficient_loading in --fsdp, FSDP_CPU_RAM_EFFICIENT_LOADING): turn that off",
            )


def difference(ours: nn.Module, theirs: nn.Module) -> str:
    """In how many parameters two models of one architecture differ on this rank, in a clause; else empty.

    What a rank holds otherwise in the two (shards of other sizes) is not compared.
    """
    named = {name: _sampled(parameter) for name, parameter in theirs.named_parameters()}
    unequal = []
    for wrapped, parameter in ours.named_parameters():
        name = wrapped.replace(".base_layer", "")  # of an adapter
        one = _sampled(parameter)
        other = named.get(name)
        if other is None or one.shape != other.shape or name.endswith(_OWN):
            continue
        coarser = min(one.dtype, other.dtype, key=lambda dtype: dtype.itemsize)
        if not torch.equal(one.to(coarser), other.to(one.device, coarser)):
            unequal.append(f"{name}{'' if other.any() else ', which is all zero'}")
    return f"{len(unequal)} of {len(named)} parameters differ, the first is {unequal[0]}" if unequal else ""


def _sampled(parameter: Any) -> Shaped[Tensor, " elements"]:
    """About 4096 elements of what this rank holds; of ZeRO-3's without the padding, which is unset memory."""
    if hasattr(parameter, "ds_tensor"):
        part: Shaped[Tensor, " elements"] = parameter.ds_tensor.detach().flatten()
        start = torch.distributed.get_rank(parameter.ds_process_group) * part.numel()
        part = part[: max(0, parameter.ds_numel - start)]
    else:
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # FSDP2
        part = local.detach().flatten()
    return part[:: 1 + part.numel() // 4096]


def why_kl(host: Host, kl: float) -> str:
    """Why the kl of the first step to an equal reference is not 0, in a clause; empty if it is, or may be.

    The kl is a mean over tokens, in nats.
    """
    if not starts_as_policy(host, host.ref_model):
        return ""
    if abs(kl) <= (1e-2 if host.args.bf16 or host.args.fp16 else 1e-6):  # of rounding
        return ""
    base = base_model(host, host.model)
    noise = noise_in(host.model) or noise_of_run(host.args, base) or "none is known: their passes differ"
    return f"kl of the first step is {kl:.2g}, where the reference is the policy without its noise ({noise})"
