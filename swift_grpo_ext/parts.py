"""The parts of the package and what in them can be turned off by name: a table that every room may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from swift_grpo_ext import versions
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import UnknownPartError, nearest
from swift_grpo_ext.settings import GONE_FEATURES


@dataclass(frozen=True)
class Part:
    """What can be turned on and off; its module's ``register`` hooks it in and returns the names."""

    module: str
    needs: tuple[str, ...] = (versions.HOST,)  # packages that must be installed, in range and fitting
    commands: tuple[str, ...] = ()  # of `registration.swift_command`, where it does something; empty: in all
    features: tuple[str, ...] = ()  # what can be left out of it alone, as ``<part>.<feature>``


@dataclass(frozen=True)
class Enabled:
    """The features of the trainer that a run uses.

    A feature has one name: this one, in the line at the start, in ``gains.json``, in
    ``SWIFT_GRPO_EXT_DISABLE`` and in docs/parts/trainer.md. The weightiest come first.
    """

    shared_prefix: bool = True  # a prompt is forwarded once for its completions
    vision_once: bool = True  # an image is encoded once for all passes
    skip_old_logps: bool = True  # the old pass is left out
    chunked_logps: bool = True  # log-probs are computed chunk by chunk
    shared_prefill: bool = True  # a prompt is computed once for the completions that are sampled from it
    reduced_recompute: bool = True  # gradient checkpointing computes less of a pack again
    skip_zero_advantage: bool = True  # completions without a gradient are left out of the policy's pass
    prepare_ahead: bool = True  # images of the next generation batch are prepared while this one trains
    self_check: bool = True  # the first pass of each kind is compared with ms-swift's own
    no_lora_dropout: bool = True  # ms-swift's default dropout of LoRA is off
    # For each that is off the reason; what would turn it on stands behind a semicolon.
    why_off: Mapping[str, str] = field(default_factory=dict)

    def without(self, **reasons: str) -> Enabled:
        """The same without those for which there is a reason; those that are off keep theirs."""
        new = {name: why for name, why in reasons.items() if why and getattr(self, name)}
        off: dict[str, Any] = dict.fromkeys(new, False)
        return replace(self, **off, why_off={**self.why_off, **new})

    def without_forward(self, reason: str) -> Enabled:
        """The same with the stock forward."""
        names = ("shared_prefix", "vision_once", "chunked_logps", "reduced_recompute", "skip_zero_advantage")
        return self.without(**dict.fromkeys(names, reason))

    @property
    def stock_forward(self) -> bool:
        """True if nothing changes the forward."""
        return not (self.shared_prefix or self.vision_once or self.chunked_logps)


FEATURES = tuple(each.name for each in fields(Enabled) if not each.name.startswith("why_"))
_FIXES = tuple(
    dict.fromkeys(name for defect in DEFECTS.values() if defect.patch for name in (defect.id, defect.patch))
)
_MEGATRON = ("shared_prefix", "vision_once", "completion_logits", "skip_old_logps", "self_check")

# In the order in which they are applied: defects of the stack first, then what builds on it.
PARTS: dict[str, Part] = {
    "compat": Part("swift_grpo_ext.compat", features=_FIXES),
    "templates": Part(
        "swift_grpo_ext.models",
        (versions.HOST, "torch", "torchvision", "transformers", "qwen-vl-utils"),
    ),
    "trainer": Part(
        "swift_grpo_ext.trainer",
        (versions.HOST, "torch", "transformers", "trl", "msgspec"),
        commands=("rlhf grpo",),
        features=(*FEATURES, "held_out"),  # which says itself whether it is on
    ),
    "megatron": Part(
        "swift_grpo_ext.megatron",
        (versions.HOST, "torch", "transformers"),
        commands=("megatron rlhf",),
        features=_MEGATRON,
    ),
    "rewards": Part("swift_grpo_ext.rewards", commands=("rlhf grpo", "megatron rlhf")),
    "presets": Part("swift_grpo_ext.deepspeed", commands=("rlhf grpo", "rlhf", "sft", "pt")),
    "callbacks": Part(
        "swift_grpo_ext.watch",
        commands=("rlhf grpo", "megatron rlhf"),
        features=("trace_numerics", "report"),
    ),
}
PREFLIGHT = Part("swift_grpo_ext.doctor.check.preflight")  # last, and only where the settings ask for it


def check_part_names(names: Iterable[str]) -> None:
    """Check names of parts.

    Raises:
        UnknownPartError: The first name that is not a part, with the nearest one and all of them.
    """
    for name in names:
        if name not in PARTS:
            raise UnknownPartError(
                f"unknown part {name!r}, did you mean {nearest(name, PARTS)!r}?",
                fix=f"parts: {', '.join(PARTS)}",
            )


def check_disabled(names: Iterable[str]) -> None:
    """Check the names of ``SWIFT_GRPO_EXT_DISABLE``: parts, ``<part>.<feature>`` or features alone.

    Raises:
        UnknownPartError: The first name that is neither a part nor a feature, with the nearest one.
    """
    features = {feature for part in PARTS.values() for feature in part.features}
    for name in names:
        part, dot, feature = name.partition(".")
        gone = GONE_FEATURES.get(feature or part)
        if gone and (feature or part) not in features:
            raise UnknownPartError(f"{name} is gone", where="SWIFT_GRPO_EXT_DISABLE", fix=gone)
        if part not in PARTS:
            if name not in features:
                check_part_names([part])
        elif dot and feature not in PARTS[part].features:
            accepted = [f"{part}.{each}" for each in PARTS[part].features]
            guess = f", did you mean {nearest(name, accepted)!r}?" if accepted else ""
            raise UnknownPartError(
                f"unknown part {name!r}{guess}",
                where="SWIFT_GRPO_EXT_DISABLE",
                fix=f"of {part}: {', '.join(accepted) or 'only the whole part'}",
            )
