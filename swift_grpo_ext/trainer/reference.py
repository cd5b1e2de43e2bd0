"""A reference model that is the policy's own checkpoint: the kl of the first step to it is 0."""

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.trainer.host import Host, base_model
from swift_grpo_ext.trainer.noise import noise_in, noise_of_run

HALF, FULL = 1e-2, 1e-4
"""Largest kl of rounding alone, nats a token: of two forwards of the same weights in 16 and in 32 bits."""


def starts_as_policy(host: Host) -> bool:
    """True before the first update of a policy whose reference model is loaded from the same checkpoint."""
    if host.ref_model is None or host.args.resume_from_checkpoint or host.state.global_step:
        return False
    policy, reference = (
        getattr(base_model(host, model), "model_info", None) for model in (host.model, host.ref_model)
    )
    return bool(policy and reference and policy.model_dir == reference.model_dir)


def require_equal_start(host: Host, kl: float) -> None:
    """Check the kl of the first step, a mean over the tokens of all ranks in nats.

    Where the policy's own noise (NEFTune, dropout) explains it, that is logged.

    Raises:
        RefusedError: It is not 0, and nothing explains it; on every rank, for all have the same mean.
    """
    limit = HALF if host.args.bf16 or host.args.fp16 else FULL
    if not starts_as_policy(host) or abs(kl) <= limit:
        return
    if noise := noise_in(host.model) or noise_of_run(host.args, base_model(host, host.model)):
        get_logger().warning_once(
            f"swift-grpo-ext: kl of the first step is {kl:.2g}: the reference is the policy without its "
            f"noise ({noise})",
            hash_id=f"kl {host.args.output_dir}",
        )
        return
    raise RefusedError(
        f"kl of the first step is {kl:.2g} nats a token and must be 0: the reference model has other weights "
        "than the policy, though both are one checkpoint",
        where="--beta, before the first update",
        fix="if a rank loads no weights and none are handed to it, turn off cpu_ram_efficient_loading "
        "(--fsdp, FSDP_CPU_RAM_EFFICIENT_LOADING)",
    )
