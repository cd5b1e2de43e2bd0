"""Which optimisations a run with Megatron can use, decided from its arguments and the model alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from accelerate.utils import gather_object

from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.megatron.layers import why_no_packs
from swift_grpo_ext.megatron.vision import why_not_once
from swift_grpo_ext.models.families import family_of, why_unknown
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.noise import noise_in

PART = "megatron"
FEATURES = ("shared_prefix", "vision_once", "completion_logits", "skip_old_logps")


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
    pass_ = _pass_reason(host)
    here = {
        "completion_logits": pass_,
        "shared_prefix": pass_ or _prefix_reason(host),
        "vision_once": pass_ or _vision_reason(host),
        "skip_old_logps": next(iter(old_readers(host)), ""),
    }
    mine = [{name: _switched_off(settings, name) or why for name, why in here.items()}]
    enabled = Enabled()
    for reasons in gather_object(mine):
        enabled = enabled.without(**reasons)
    return enabled


def _switched_off(settings: Settings, name: str) -> str:
    feature = f"{PART}.{name}"
    return f"switched off; SWIFT_GRPO_EXT_DISABLE without {feature}" if settings.disables(feature) else ""


def _first(reasons: Mapping[str, object]) -> str:
    return next((why for why, holds in reasons.items() if holds), "")


def _pass_reason(host: Host) -> str:
    """What a pass does beside computing log-probs of the tokens of one rank."""
    args = host.args
    return _first(
        {
            "context parallelism cuts each row between ranks; --context_parallel_size 1": (
                args.context_parallel_size > 1
            ),
            "multi-token prediction reads all hidden states; without --mtp_num_layers": args.mtp_num_layers,
            "virtual pipeline stages; without --virtual_pipeline_model_parallel_size": (
                args.virtual_pipeline_model_parallel_size
            ),
            f"router replay ({args.router_replay_mode}) counts tokens; --router_replay_mode disabled": (
                args.router_replay_mode != "disabled"
            ),
            "fp8 and fp4 want lengths that their blocks divide; without --fp8_format": _low_precision(args),
            "the output layer is not Megatron's own": host.output_layers.odd,
        }
    )


def _low_precision(args: Any) -> object:
    names = ("fp8_format", "fp8", "fp4_format", "fp4")
    return next(filter(None, (getattr(args, name, None) for name in names)), None)


def _prefix_reason(host: Host) -> str:
    """Why prompts cannot be shared."""
    args = host.args
    config = host.config
    family = family_of(host.template.config)
    layers = why_no_packs(host.unwrapped_models)
    coefficient = args.moe_aux_loss_coeff
    losses = coefficient if isinstance(coefficient, (list, tuple)) else [coefficient]
    return _first(
        {
            why_unknown(host.template.config) or "nothing is known about the family": (
                args.is_multimodal and family is None
            ),
            "an auxiliary router loss counts each copy of a prompt; --moe_aux_loss_coeff 0": (
                config.num_moe_experts and any(losses)
            ),
            "fused rotary embeddings count places by themselves; --apply_rope_fusion false": (
                args.apply_rope_fusion
            ),
            "Megatron's own attention takes no pack; --attention_backend flash": (
                getattr(args.attention_backend, "name", args.attention_backend) == "local"
            ),
            "tp_comm_overlap fixes the length of a pack; --tp_comm_overlap false": args.tp_comm_overlap,
            "pipeline stages exchange tensors of one length; --variable_seq_lengths true": (
                args.pipeline_model_parallel_size > 1 and not config.variable_seq_lengths
            ),
            "latent attention (MLA)": config.multi_latent_attention,
            "layers with a sliding window": getattr(config, "window_size", None),
            layers: layers,
            "tokens of an image see each other": getattr(family, "image_blocks", "none") != "none",
            _noise(host): _noise(host),
        }
    )


def _vision_reason(host: Host) -> str:
    if not host.args.is_multimodal:
        return "the model takes no images"
    return why_not_once(host.unwrapped_models, host.ref_models, family_of(host.template.config))


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
    }
    return [why for why, reads in readers.items() if reads]
