"""Reasons against the features of a run with transformers, from configuration and parameters alone.

Never from data: a decision that differs between ranks would change the number of their collectives, and
ZeRO-3 would hang.
"""

from __future__ import annotations

from collections.abc import Sequence

from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel

from swift_grpo_ext.features import Features, decided, switched_off
from swift_grpo_ext.group.interface import why_no_packs, why_no_shared_prefill
from swift_grpo_ext.group.vision import trains_outside
from swift_grpo_ext.group.vision_once import same_weights, share_weights
from swift_grpo_ext.losses import loss_named
from swift_grpo_ext.models.derived import speaking_model
from swift_grpo_ext.models.families import VisionFamily, family_of, why_unknown
from swift_grpo_ext.models.family import Capability
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters
from swift_grpo_ext.trainer.host import Early, Host, base_model
from swift_grpo_ext.trainer.look_ahead import why_not_ahead
from swift_grpo_ext.trainer.monitors import why_unwatched
from swift_grpo_ext.trainer.noise import noise_in, noise_in_config, noise_of_run
from swift_grpo_ext.trainer.old_pass import old_reason, teachers
from swift_grpo_ext.trainer.reference import why_no_copy

_GATHERED = "ZeRO-3 and FSDP release a layer's parameters after its forward; --deepspeed zero2 where it fits"
FREEZE = "; --freeze_vit true --freeze_aligner true"
OTHER_TOWER = "the reference model has another vision tower; --ref_model with that of --model"


def decide(host: Host, settings: Settings) -> Features:
    """Decide which features this run can use, and why not the others. Every rank comes here: a collective."""
    base = base_model(host, host.model)
    family = family_of(base.config)
    head = _head_reason(host, base)
    prefix = head or _prefix_reason(host, base)
    unshared = switched_off(settings, "trainer", "shared_prefix") or prefix
    if unshared and host.template.padding_free:  # only a pack tells its rows apart
        head = head or f"padding_free without shared_prefix ({unshared})"
    images = {
        "vision_once": lambda: _vision_reason(host, base, family),
        "prepare_ahead": lambda: why_not_ahead(host.template),
    }
    no_images = dict.fromkeys(images, lambda: "the model takes no images")
    reasons = {
        "shared_prefix": lambda: prefix,
        "skip_old_logps": lambda: old_reason(host),
        "chunked_logps": lambda: head,
        "shared_prefill": lambda: _prefill_reason(host, base, family),
        "reduced_recompute": lambda: _GATHERED if gathers_parameters(host) else "",
        "skip_zero_advantage": lambda: _reader_reason(host, base, family),
        "engine_check": why_unwatched,
        "held_out": lambda: host.held_out.why_off,
    }
    idle = {"held_out": lambda: host.held_out.why_idle, "reference_copy": lambda: why_no_copy(host)}
    if host.is_multimodal:
        return decided("trainer", settings, reasons | images, idle)
    return decided("trainer", settings, reasons, idle | no_images)


def frozen_modules(base: nn.Module, family: VisionFamily) -> list[nn.Module]:
    """Modules that an image passes on its way to the language model."""
    return [base.get_submodule(path) for path in (*family.vision_tower, *family.aligner)]


def share_tower(host: Host, family: VisionFamily | None) -> None:
    """Keep the vision tower, which is the same in policy and reference, in memory once."""
    # Syncing mixes the policy into the reference, in place.
    if host.args.sync_ref_model or host.ref_model is None or family is None:
        return
    both = [frozen_modules(base_model(host, model), family) for model in (host.model, host.ref_model)]
    for policys, references in zip(*both, strict=True):
        share_weights(policys, references)


def _head_reason(host: Host | Early, base: PreTrainedModel) -> str:
    """Reason why log-probs are not simply those of whole rows under the output layer; empty if they are."""
    if host.template.sequence_parallel_size > 1:
        return "sequence parallel: ranks cannot divide a pack between them yet; --sequence_parallel_size 1"
    config = base.config.get_text_config()
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            return f"the model changes its logits ({name}); only ms-swift's own way is right for it"
    return "" if base.get_output_embeddings() is not None else "the model has no output layer of its own"


def _unknown(base: PreTrainedModel, what: str = "") -> str:
    return why_unknown(base.config) or f"nothing is known about {what}the family {base.config.model_type!r}"


def why_not_shared(host: Host | Early, settings: Settings) -> str:
    """Reason why prompts will not be shared, as known before the trainer is built; empty if they will."""
    base = speaking_model(host.template.get_base_model(host.model))
    off = switched_off(settings, "trainer", "shared_prefix")
    return off or _head_reason(host, base) or _prefix_reason(host, base)


def _prefix_reason(host: Host | Early, base: PreTrainedModel) -> str:
    family = family_of(base.config)
    if host.is_multimodal and family is None:
        return _unknown(base)
    if family and (reason := _lacks(base, family, "shared_prefix")):
        return reason
    if isinstance(host.model, PeftModel) and host.model.active_peft_config.is_prompt_learning:
        return "prompt learning; --tuner_type lora or full"
    return why_no_packs(base) or noise_in(host.model) or noise_of_run(host.args, base)


def _lacks(base: PreTrainedModel, family: VisionFamily, capability: Capability) -> str:
    """Reason why the family lacks a capability, by itself or with parameters that ZeRO-3 divides."""
    divided = any(hasattr(parameter, "ds_id") for parameter in base.parameters())
    return family.lacks.get(capability, "") or (family.lacks.get("zero3", "") if divided else "")


def _prefill_reason(host: Host, base: PreTrainedModel, family: VisionFamily | None) -> str:
    if host.args.use_vllm:
        scheduler = host.args.multi_turn_scheduler
        if scheduler:
            return f"{scheduler} takes each completion by itself; no --multi_turn_scheduler"
        if host.vllm_use_async_engine:
            engine = "the async engine takes each completion by itself"
            return f"{engine}; swift rollout --vllm_use_async_engine false"
        return ""
    if host.is_multimodal and family is None:
        return _unknown(base)
    return why_no_shared_prefill(base)


def _reader_reason(host: Host, base: PreTrainedModel, family: VisionFamily | None) -> str:
    """Who reads the log-probs of completions whose advantage is 0."""
    loss = loss_named(host.loss_type)
    readers = {
        f"beta is {host.beta:g}; --beta 0, if the reference is not needed": host.beta != 0,
        f"loss_type {loss.name} {loss.reads_zero_advantage}; --loss_type grpo": loss.reads_zero_advantage,
        "entropies are asked for; --log_entropy false --top_entropy_quantile 1": host.compute_entropy,
        "importance sampling; no --rollout_importance_sampling_mode": host.rollout_importance_sampling_mode,
        "logged metrics; --log_rollout_offpolicy_metrics false": host.log_rollout_offpolicy_metrics,
        "a mask; no --off_policy_sequence_mask_delta": host.off_policy_sequence_mask_delta is not None,
        "the liger loss; --use_liger_kernel false": host.use_liger_loss,
        "the teacher's loss; no --teacher_model": any(teachers(host).values()),
        "the vision tower or the aligner trains" + FREEZE: bool(family and trains_outside(base)),
    }
    return next((why for why, reads in readers.items() if reads), "")


def _vision_reason(host: Host, base: PreTrainedModel, family: VisionFamily | None) -> str:
    if family is None:
        return _unknown(base, "images of ")
    if reason := _lacks(base, family, "vision_once"):
        return reason
    if name := trains_outside(base):
        return f"the vision tower or the aligner trains{FREEZE}: {name} does"
    models = [base] if host.ref_model is None else [base, base_model(host, host.ref_model)]
    why = why_encoded_again(*(frozen_modules(model, family) for model in models))
    if agreed_max(int(bool(why)), host.accelerator.device):
        return why or OTHER_TOWER
    if rate := noise_in_config(base.config.vision_config):
        return f"{rate} in the vision config"
    if getattr(base.config.vision_config, "tokenize_function", "") == "gumbel_argmax":
        return "the visual tokenizer samples"
    return ""


def why_encoded_again(towers: Sequence[nn.Module], references: Sequence[nn.Module] = ()) -> str:
    """Reason why the reference, or another pass, has other image features though towers do not train.

    In a clause; empty if they are the same. Every rank comes here.
    """
    if any(isinstance(part, BaseTunerLayer) for tower in towers for part in tower.modules()):
        return f"the vision tower or the aligner has adapters{FREEZE}"
    equal = [same_weights(*pair) for pair in zip(towers, references, strict=False)]
    return next(filter(None, map(noise_in, towers)), "" if all(equal) else OTHER_TOWER)
