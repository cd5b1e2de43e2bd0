"""The parts of the package and what in them can be turned off by name: a table that every room may read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swift_grpo_ext import versions
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import UnknownPartError, nearest
from swift_grpo_ext.features import features_of
from swift_grpo_ext.settings import GONE_FEATURES


@dataclass(frozen=True)
class Part:
    """A part that can be turned on and off; its module's ``register`` hooks it in and returns the names."""

    module: str
    needs: tuple[str, ...] = (versions.HOST,)  # packages that must be installed, in range and fitting
    commands: tuple[str, ...] = ()  # those of `registration.swift_command` that it acts in; empty: all
    features: tuple[str, ...] = ()  # what can be turned off alone, as ``<part>.<feature>``


_FIXES = tuple(
    dict.fromkeys(name for defect in DEFECTS.values() if defect.patch for name in (defect.id, defect.patch))
)

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
        features=features_of("trainer"),
    ),
    "megatron": Part(
        "swift_grpo_ext.megatron",
        (versions.HOST, "torch", "transformers"),
        commands=("megatron rlhf",),
        features=features_of("megatron"),
    ),
    "rewards": Part("swift_grpo_ext.rewards", commands=("rlhf grpo", "megatron rlhf")),
    "presets": Part("swift_grpo_ext.deepspeed", commands=("rlhf grpo", "rlhf", "sft", "pt")),
    "callbacks": Part(
        "swift_grpo_ext.watch",
        commands=("rlhf grpo", "megatron rlhf"),
        features=("trace_numerics", "report"),
    ),
}
PREFLIGHT = "swift_grpo_ext.doctor.check.preflight"  # last, and only where the settings ask for it


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
        if gone := GONE_FEATURES.get(feature or part):
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
