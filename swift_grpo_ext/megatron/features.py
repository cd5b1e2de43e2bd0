"""Which optimisations a run with Megatron can use, decided from its arguments and the model alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from accelerate.utils import gather_object
from swift.callbacks import callbacks_map

from swift_grpo_ext.megatron.arguments import first_of, why_no_passes, why_no_sharing
from swift_grpo_ext.megatron.host import Host, rows_of_evaluation_batch
from swift_grpo_ext.megatron.layers import why_no_packs
from swift_grpo_ext.megatron.vision import why_not_once
from swift_grpo_ext.models.families import family_of, why_unknown
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.monitors import CALLBACK
from swift_grpo_ext.trainer.noise import noise_in

PART = "megatron"
FEATURES = ("shared_prefix", "vision_once", "completion_logits", "skip_old_logps")
# What watches a run, and is named in its line, too.
WATCHING = ("engine_check", "held_out", "trace_numerics")
_NO_SINKHORN = "--moe_router_load_balancing_type none"


@dataclass(frozen=True)
class Enabled:
    """What is on, by name; ``why_off`` has the reason for each that is off, after a semicolon a remedy."""

    why_off: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name not in self.why_off

    def without(self, **reasons: str) -> "Enabled":
        """The same without those for which there is a reason; those that are off keep theirs."""
        new = {name: why for name, why in reasons.items() if why}
        return replace(self, why_off={**new, **self.why_off})


def decide(host: Host, settings: Settings) -> Enabled:
    """Hold every optimisation against the run; what one rank cannot use is off on all."""
    pass_ = _switched_off(settings, "completion_logits") or _pass_reason(host)  # which the others need
    here = {
        "completion_logits": pass_,
        "shared_prefix": pass_ or _prefix_reason(host),
        "vision_once": pass_ or _vision_reason(host),
        "skip_old_logps": next(iter(old_readers(host)), ""),
        "engine_check": _engine_reason(settings),
        "held_out": _held_out_reason(host),
        "trace_numerics": "Megatron checks gradients by itself, and ends such a run",
    }
    mine = [{name: _switched_off(settings, name) or why for name, why in here.items()}]
    enabled = Enabled()
    for reasons in gather_object(mine):
        enabled = enabled.without(**reasons)
    return enabled


def _switched_off(settings: Settings, name: str) -> str:
    feature = f"{PART}.{name}"
    return f"switched off; SWIFT_GRPO_EXT_DISABLE without {feature}" if settings.disables(feature) else ""


def _engine_reason(settings: Settings) -> str:
    if CALLBACK not in callbacks_map:
        return "nothing watches; SWIFT_GRPO_EXT_DISABLE without callbacks"
    return "" if settings.agree_every else "switched off; SWIFT_GRPO_EXT_AGREE_EVERY=50"


def _held_out_reason(host: Host) -> str:
    """Why ms-swift evaluates by itself, or not at all."""
    args = host.args
    batch = rows_of_evaluation_batch(host)
    return first_of(
        {
            "ms-swift evaluates nothing with Ray": args.use_ray,
            "no held-out rows; --val_dataset": not (args.val_dataset or args.split_dataset_ratio),
            "rows of a stream cannot be chosen; --streaming false": args.streaming,
            f"fewer held-out rows than the {batch} of an evaluation; --val_dataset": not args.eval_iters,
        }
    )


def _pass_reason(host: Host) -> str:
    odd = "the output layer is not Megatron's own" if host.output_layers.odd else ""
    return why_no_passes(host.args) or odd


def _prefix_reason(host: Host) -> str:
    """Why prompts cannot be shared."""
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


def _vision_reason(host: Host) -> str:
    if not host.args.is_multimodal:
        return "the model takes no images"
    return why_not_once(host.unwrapped_models, host.ref_models, family_of(host.template.config))


def _sinkhorn(config: Any) -> bool:
    return bool(config.num_moe_experts) and "sinkhorn" in str(config.moe_router_load_balancing_type)


def _noise(host: Host) -> str:
    found = (noise_in(model) for model in host.unwrapped_models)
    own = (getattr(host.config, name, 0) for name in ("attention_dropout", "hidden_dropout"))
    return next(filter(None, found), "") or ("dropout of the model" if any(own) else "")


def old_readers(host: Host) -> list[str]:
    """Who needs old log-probs before the policy's first pass, and what would change that."""
    readers = {
        "the KL in rewards reads it; --kl_in_reward false": host.kl_in_reward and host.beta,
        "a teacher is compared with it; without teacher": host._has_teacher_explicit,
        "router replay records it; --router_replay_mode disabled": host.enable_routing_replay,
        f"sinkhorn routes otherwise in training; {_NO_SINKHORN}": _sinkhorn(host.config),
    }
    return [why for why, reads in readers.items() if reads]
