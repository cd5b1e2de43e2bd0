"""Arguments of ``megatron rlhf`` that turn gains off; needs neither Megatron nor a model."""

from collections.abc import Mapping
from typing import Any

_LOW_PRECISION = ("fp8_format", "fp8", "fp4_format", "fp4")


def why_no_passes(args: Any) -> str:
    """Work of a pass beyond the log-probs of one rank's tokens, in a clause; empty without any.

    It keeps everything off: shared prompts, images encoded once and logits of completions alone. After a
    semicolon comes a remedy.
    """
    replay = args.router_replay_mode
    return first_of(
        {
            "context parallelism cuts each row between ranks; --context_parallel_size 1": (
                (args.context_parallel_size or 1) > 1
            ),
            "multi-token prediction reads all hidden states; without --mtp_num_layers": args.mtp_num_layers,
            "virtual pipeline stages; without --virtual_pipeline_model_parallel_size": (
                args.virtual_pipeline_model_parallel_size
            ),
            f"router replay ({replay}) counts tokens; --router_replay_mode disabled": (
                replay not in (None, "disabled")
            ),
            "fp8 and fp4 want lengths that their blocks divide; without --fp8_format": any(
                getattr(args, name, None) for name in _LOW_PRECISION
            ),
        }
    )


def why_no_sharing(args: Any, experts: bool = True) -> str:
    """Further reason why prompts cannot be shared, in a clause with a remedy; empty without one.

    Without ``experts`` nothing is routed, whatever is typed.
    """
    coefficient = args.moe_aux_loss_coeff
    losses = coefficient if isinstance(coefficient, (list, tuple)) else [coefficient]
    return first_of(
        {
            "an auxiliary router loss counts each copy of a prompt; --moe_aux_loss_coeff 0": experts
            and any(losses),
            "the z-loss of routers counts each copy of a prompt; without --moe_z_loss_coeff": (
                experts and args.moe_z_loss_coeff
            ),
            "how many tokens an expert drops depends on their number; without --moe_expert_capacity_factor": (
                experts and args.moe_expert_capacity_factor
            ),
            "fused rotary embeddings count places by themselves; --apply_rope_fusion false": (
                args.apply_rope_fusion
            ),
            "Megatron's own attention takes no pack; --attention_backend flash": (
                getattr(args.attention_backend, "name", args.attention_backend) == "local"
            ),
            "tp_comm_overlap fixes the length of a pack; --tp_comm_overlap false": args.tp_comm_overlap,
        }
    )


def first_of(reasons: Mapping[str, object]) -> str:
    """The first of the reasons that holds."""
    return next((why for why, holds in reasons.items() if holds), "")
