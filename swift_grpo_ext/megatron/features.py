"""Reasons against the features of a run with Megatron, from its arguments and the model alone."""

from typing import Any

from accelerate.utils import gather_object

from swift_grpo_ext.features import Features, decided, switched_off
from swift_grpo_ext.megatron.arguments import first_of, why_no_passes, why_no_sharing
from swift_grpo_ext.megatron.host import MegatronHost, rows_of_evaluation_batch
from swift_grpo_ext.megatron.layers import why_no_packs
from swift_grpo_ext.megatron.vision import why_not_once
from swift_grpo_ext.models.families import family_of, why_unknown
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.monitors import why_unwatched
from swift_grpo_ext.trainer.noise import noise_in

_NO_SINKHORN = "--moe_router_load_balancing_type none"


def decide(host: MegatronHost, settings: Settings) -> Features:
    """Decide which features this run can use; what one rank cannot is off on all. Every rank comes here."""
    # The others need the pass to be ours.
    of_pass = switched_off(settings, "megatron", "completion_logits") or _pass_reason(host)
    here = decided(
        "megatron",
        settings,
        {
            "completion_logits": lambda: of_pass,
            "shared_prefix": lambda: of_pass or _prefix_reason(host),
            "vision_once": lambda: of_pass or _vision_reason(host),
            "skip_old_logps": lambda: next(iter(old_readers(host)), ""),
            "engine_check": why_unwatched,
            "held_out": lambda: _held_out_reason(host),
            "trace_numerics": lambda: "Megatron checks gradients by itself, and ends such a run",
        },
        {
            "vision_once": lambda: "" if host.args.is_multimodal else "the model takes no images",
            "held_out": lambda: "" if _evaluates(host) else "no held-out rows; --val_dataset",
            "reference_copy": lambda: (
                ""
                if host.args.tuner_type == "lora_llm" and host.beta
                else "with adapters off it is the start"
            ),
        },
    )
    features = here
    for reasons in gather_object([dict(here.why_off)]):
        features = features.without(**reasons)
    return features


def _held_out_reason(host: MegatronHost) -> str:
    """Reason why ms-swift evaluates by itself, or not at all; empty without one."""
    args = host.args
    batch = rows_of_evaluation_batch(host)
    return first_of(
        {
            "ms-swift evaluates nothing with Ray": args.use_ray,
            "rows of a stream cannot be chosen; --streaming false": args.streaming,
            f"fewer held-out rows than the {batch} of an evaluation; --val_dataset": (
                _evaluates(host) and not args.eval_iters
            ),
        }
    )


def _evaluates(host: MegatronHost) -> bool:
    return bool(host.args.val_dataset or host.args.split_dataset_ratio)


def _pass_reason(host: MegatronHost) -> str:
    odd = "the output layer is not Megatron's own" if host.output_layers.odd else ""
    return why_no_passes(host.args) or odd


def _prefix_reason(host: MegatronHost) -> str:
    """Reason why prompts cannot be shared; empty if they can."""
    args = host.args
    config = host.config
    family = family_of(host.template.config)
    of_model = {
        why_unknown(host.template.config) or "nothing is known about the family": (
            args.is_multimodal and family is None
        ),
        'biases of routers count each copy of a prompt; "aux_loss_alpha": 0 in config.json': (
            # Those of an adapter's base are frozen.
            config.moe_router_enable_expert_bias
            and config.moe_router_bias_update_rate
            and args.tuner_type == "full"
        ),
        f"sinkhorn routes a token by the others; {_NO_SINKHORN}": _sinkhorn(config),
        "pipeline stages exchange tensors of one length; --variable_seq_lengths true": (
            args.pipeline_model_parallel_size > 1 and not config.variable_seq_lengths
        ),
        "latent attention (MLA)": config.multi_latent_attention,
        "layers with a sliding window": getattr(config, "window_size", None),
        "tokens of an image see each other": getattr(family, "image_blocks", "none") != "none",
    }
    return (
        why_no_sharing(args, bool(config.num_moe_experts))
        or first_of(of_model)
        or why_no_packs(host.unwrapped_models)
        or _noise(host)
    )


def _vision_reason(host: MegatronHost) -> str:
    family = family_of(host.template.config)
    return why_not_once(host.unwrapped_models, host.ref_models, family) if host.args.is_multimodal else ""


def _sinkhorn(config: Any) -> bool:
    return bool(config.num_moe_experts) and "sinkhorn" in str(config.moe_router_load_balancing_type)


def _noise(host: MegatronHost) -> str:
    noises = (noise_in(model) for model in host.unwrapped_models)
    own = (getattr(host.config, name, 0) for name in ("attention_dropout", "hidden_dropout"))
    return next(filter(None, noises), "") or ("dropout of the model" if any(own) else "")


def old_readers(host: MegatronHost) -> list[str]:
    """Who needs old log-probs before the policy's first pass, and what would change that."""
    readers = {
        "kl_in_reward needs the old log-probs; --kl_in_reward false": host.kl_in_reward and host.beta,
        "a teacher is compared with it; without teacher": host._has_teacher_explicit,
        "router replay records it; --router_replay_mode disabled": host.enable_routing_replay,
        f"sinkhorn routes otherwise in training; {_NO_SINKHORN}": _sinkhorn(host.config),
    }
    return [why for why, reads in readers.items() if reads]
