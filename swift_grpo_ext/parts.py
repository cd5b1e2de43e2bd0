"""The parts of the package and what in them can be turned off by name: a table that every room may read."""

from collections.abc import Iterable
from dataclasses import dataclass

from swift_grpo_ext import versions
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import UnknownPartError, nearest


@dataclass(frozen=True)
class Part:
    """What can be turned on and off; its module's ``register`` hooks it in and returns the names."""

    module: str
    needs: tuple[str, ...] = (versions.HOST,)  # packages that must be installed, in range and fitting
    commands: tuple[str, ...] = ()  # of `registration.swift_command`, where it does something; empty: in all
    features: tuple[str, ...] = ()  # what can be left out of it alone, as ``<part>.<feature>``


_TRAINER = (
    "shared_prefix",
    "vision_once",
    "skip_old_logps",
    "engine_old_logps",
    "chunked_logps",
    "shared_prefill",
    "reduced_recompute",
    "skip_silent",
    "self_check",
    "no_lora_dropout",
    "held_out",
)
_FIXED = tuple(dict.fromkeys(name for one in DEFECTS.values() if one.patch for name in (one.id, one.patch)))

# In the order in which they are applied: defects of the stack first, then what builds on it.
PARTS: dict[str, Part] = {
    "compat": Part("swift_grpo_ext.compat", features=_FIXED),
    "templates": Part(
        "swift_grpo_ext.models",
        (versions.HOST, "torch", "torchvision", "transformers", "qwen-vl-utils"),
    ),
    "trainer": Part(
        "swift_grpo_ext.trainer",
        (versions.HOST, "torch", "transformers", "trl", "msgspec"),
        commands=("rlhf grpo",),
        features=_TRAINER,
    ),
    "rewards": Part("swift_grpo_ext.rewards", commands=("rlhf grpo", "megatron rlhf")),
    "presets": Part("swift_grpo_ext.deepspeed", commands=("rlhf grpo", "rlhf", "sft", "pt")),
    "callbacks": Part("swift_grpo_ext.watch", commands=("rlhf grpo",), features=("trace_numerics", "report")),
}
PREFLIGHT = Part("swift_grpo_ext.doctor.check.preflight")  # last, and only where the settings ask for it


def check_part_names(names: Iterable[str]) -> None:
    """Raise UnknownPartError, with the nearest name and all of them, for the first name that is no part."""
    for name in names:
        if name not in PARTS:
            raise UnknownPartError(
                f"unknown part {name!r}, did you mean {nearest(name, PARTS)!r}?",
                fix=f"parts: {', '.join(PARTS)}",
            )


def check_disabled(names: Iterable[str]) -> None:
    """Raise UnknownPartError for the first of ``SWIFT_GRPO_EXT_DISABLE`` that is no part or feature."""
    for name in names:
        part, dot, feature = name.partition(".")
        if not dot or part not in PARTS:
            check_part_names([part])
        elif feature not in PARTS[part].features:
            known = [f"{part}.{each}" for each in PARTS[part].features]
            guess = f", did you mean {nearest(name, known)!r}?" if known else ""
            raise UnknownPartError(
                f"unknown part {name!r}{guess}",
                where="SWIFT_GRPO_EXT_DISABLE",
                fix=f"of {part}: {', '.join(known) or 'only the whole part'}",
            )
