"""Which of the group's optimisations a run can use, decided from configuration and parameters alone.

Never from data: a decision that differs between ranks would change the number of their collectives, and
ZeRO-3 would hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from swift_grpo_ext.group.support import why_no_packs, why_no_shared_prefill
from swift_grpo_ext.group.vision import trains
from swift_grpo_ext.group.vision_once import same_weights
from swift_grpo_ext.models.families import VisionFamily, family_of, why_unknown
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters

SWITCHED_OFF = "switched off"


@dataclass(frozen=True)
class Off:
    """For each optimisation why it is off; empty where it is on.

    Attributes:
        shared_prefix: A prompt is forwarded once for its completions.
        vision_once: An image is encoded once for all passes.
        skip_old: The old pass is left out.
        chunked_logps: Log-probs are computed chunk by chunk.
        shared_prefill: A prompt is computed once for the completions that are sampled from it.
        spare_recompute: Gradient checkpointing computes less of a pack again.
    """

    shared_prefix: str = ""
    vision_once: str = ""
    skip_old: str = ""
    chunked_logps: str = ""
    shared_prefill: str = ""
    spare_recompute: str = ""

    def without_forward(self, reason: str) -> Off:
        """The same with the stock forward."""
        names = ("shared_prefix", "vision_once", "chunked_logps", "spare_recompute")
        return replace(self, **dict.fromkeys(names, reason))

    @property
    def stock_forward(self) -> bool:
        """True if nothing changes the forward."""
        return all((self.shared_prefix, self.vision_once, self.chunked_logps))

    def __str__(self) -> str:
        states = (f"{name} {f'off ({why})' if why else 'on'}" for name, why in vars(self).items())
        return ", ".join(states)


def decide(trainer: Any, settings: Settings) -> Off:
    """Hold every optimisation against the run."""
    base = base_model(trainer, trainer.model)
    facts = family_of(base.config)
    layout = _layout_reason(trainer)
    head = layout or _head_reason(base)

    def off(feature: str) -> str:
        return SWITCHED_OFF if settings.disables(f"trainer.{feature}") else ""

    return Off(
        shared_prefix=off("shared_prefix") or head or _prefix_reason(trainer, base, facts),
        vision_once=off("vision_once") or layout or _vision_reason(trainer, base, facts),
        skip_old=off("skip_old_logps") or _old_reason(trainer),
        chunked_logps=off("chunked_logps") or head,
        shared_prefill=off("shared_prefill") or _prefill_reason(trainer, base, facts),
        spare_recompute=off("reduced_recompute") or _recompute_reason(trainer),
    )


def base_model(trainer: Any, model: nn.Module) -> Any:
    """The ``*ForConditionalGeneration`` module inside DDP, DeepSpeed and PEFT."""
    return trainer.template.get_base_model(trainer.accelerator.unwrap_model(model))


def frozen_modules(base: nn.Module, facts: VisionFamily) -> list[nn.Module]:
    """What an image passes on its way to the language model."""
    return [base.get_submodule(path) for path in (*facts.vision_tower, *facts.aligner)]


def _layout_reason(trainer: Any) -> str:
    template = trainer.template
    if template.sequence_parallel_size > 1:
        return "sequence parallel"
    return "padding_free" if template.padding_free else ""


def _head_reason(base: Any) -> str:
    """Why the logits are not simply those of the output layer."""
    config = base.config.get_text_config()
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            return f"the model changes its logits ({name})"
    return "" if base.get_output_embeddings() is not None else "the model has no output layer of its own"


def _prefix_reason(trainer: Any, base: Any, facts: VisionFamily | None) -> str:
    if trainer.is_multimodal and facts is None:
        return why_unknown(base.config) or f"nothing is known about the family {base.config.model_type!r}"
    if facts is not None and not facts.capabilities["shared_prefix"]:
        return facts.capabilities["shared_prefix"].reason  # type: ignore[union-attr]
    if isinstance(trainer.model, PeftModel) and trainer.model.active_peft_config.is_prompt_learning:
        return "prompt learning"
    return why_no_packs(base) or _dropout_reason(trainer.model)


def _prefill_reason(trainer: Any, base: Any, facts: VisionFamily | None) -> str:
    if trainer.args.use_vllm:
        return "rollouts by vLLM, which shares prompts itself"
    if trainer.is_multimodal and facts is None:
        return why_unknown(base.config) or f"nothing is known about the family {base.config.model_type!r}"
    return why_no_shared_prefill(base)


def _recompute_reason(trainer: Any) -> str:
    if gathers_parameters(trainer):
        return "ZeRO-3 and FSDP release a layer's parameters at the end of its forward"
    return ""


def _dropout_reason(model: nn.Module) -> str:
    """Completions that share a prompt would share its dropout mask as well."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p > 0:
            return f"dropout {module.p:g} in {name}"
    return ""


def _vision_reason(trainer: Any, base: Any, facts: VisionFamily | None) -> str:
    if facts is None:
        unknown = f"nothing is known about images of the family {base.config.model_type!r}"
        return why_unknown(base.config) or unknown
    if not facts.capabilities["vision_once"]:
        return facts.capabilities["vision_once"].reason  # type: ignore[union-attr]
    modules = frozen_modules(base, facts)
    if name := trains(modules):
        return f"{name} of the vision tower or the aligner trains"
    if any(isinstance(part, BaseTunerLayer) for module in modules for part in module.modules()):
        return "the vision tower or the aligner has adapters"
    if getattr(base.config.vision_config, "tokenize_function", "") == "gumbel_argmax":
        return "the visual tokenizer samples"
    if trainer.ref_model is not None:
        theirs = frozen_modules(base_model(trainer, trainer.ref_model), facts)
        same = all(same_weights(*pair) for pair in zip(modules, theirs, strict=True))
        if agreed_max(int(not same), trainer.accelerator.device):
            return "the reference model has another vision tower"
    return ""


def _old_reason(trainer: Any) -> str:
    """Who needs old log-probs that are not the policy's own (D1 of docs/findings.md)."""
    return next((reason for applies, reason in _old_consumers(trainer) if applies()), "")


def _old_consumers(trainer: Any) -> Iterator[tuple[Callable[[], bool], str]]:
    args = trainer.args
    # With upstream/skip-old-logps applied, the first pass over a micro-batch is the reference's.
    yield lambda: hasattr(trainer, "_needs_old_logps"), "the host leaves it out itself"
    yield trainer.old_policy, "a generation batch serves more than one update"
    yield lambda: bool(trainer.kl_in_reward and trainer.beta), "kl_in_reward"
    yield trainer._has_teacher_explicit, "a teacher"
    yield lambda: trainer.advantage_reweight == "rlsd", "advantage_reweight rlsd"
    yield lambda: trainer.sdar_loss_coef > 0, "sdar_loss_coef"
    yield (
        lambda: bool(args.use_liger_kernel and args.rollout_importance_sampling_mode),
        "rollout importance sampling in the liger loss",
    )
    yield lambda: _columns(trainer) is None, "the columns of the dataset are unknown"
    yield lambda: bool({"teacher_prompt", "teacher_images"} & _columns(trainer)), "teacher columns"  # type: ignore[operator]


def _columns(trainer: Any) -> set[str] | None:
    """Columns of the training data; None for a stream that does not tell."""
    names = getattr(trainer.train_dataset, "column_names", None)
    return None if names is None else set(names)
