"""One table of features for both engines; which of them a run has, and why not the others.

A feature has one name: the one of this table, in the line at the start, in ``gains.json``, in
``SWIFT_GRPO_EXT_DISABLE`` and in docs/parts/. A new one is a row here, the reasons against it in
`trainer/features.py` or `megatron/features.py`, the code that it turns on, and its row in docs/parts/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from swift_grpo_ext.settings import Settings

Engine = Literal["trainer", "megatron"]  # transformers' trainer or Megatron's, by the names of their parts
Section = Literal["gains", "checks", "watching"]  # of ``gains.json``
Reasons = Mapping[str, Callable[[], str]]


@dataclass(frozen=True)
class Feature:
    """A row of the table."""

    engines: tuple[Engine, ...] = ("trainer", "megatron")
    section: Section = "gains"
    needs: str = ""  # another feature; while that is off, so is this one, if the engine has both
    of_pass: bool = False  # it changes the forward pass: off where ms-swift's own forward is used


# The most important come first.
FEATURES: dict[str, Feature] = {
    # A prompt is forwarded once for its completions.
    "shared_prefix": Feature(needs="completion_logits", of_pass=True),
    # An image is encoded once for all passes.
    "vision_once": Feature(needs="completion_logits", of_pass=True),
    # The forward pass for old log-probs is left out.
    "skip_old_logps": Feature(),
    # Logits are computed for completions only.
    "completion_logits": Feature(("megatron",), of_pass=True),
    # Log-probs are computed chunk by chunk.
    "chunked_logps": Feature(("trainer",), of_pass=True),
    # A prompt is computed once for the completions that are sampled from it.
    "shared_prefill": Feature(("trainer",)),
    # Gradient checkpointing recomputes less of a pack.
    "reduced_recompute": Feature(("trainer",), of_pass=True),
    # Completions without a gradient are left out of the policy's forward pass.
    "skip_zero_advantage": Feature(("trainer",), needs="shared_prefix", of_pass=True),
    # Images of the next generation batch are prepared while this one trains.
    "prepare_ahead": Feature(("trainer",)),
    # The reference is a copy of the trained weights where adapters turned off are not the initial model.
    "reference_copy": Feature(),
    # The first pass of each kind is compared with ms-swift's own.
    "self_check": Feature(section="checks"),
    # ms-swift's default dropout of LoRA is off.
    "no_lora_dropout": Feature(section="checks"),
    # The engine's log-probs and prompts are compared with the trainer's.
    "engine_check": Feature(section="watching"),
    # Rewards of held-out rows, and the best checkpoint.
    "held_out": Feature(section="watching"),
    # The first value that is not finite is named.
    "trace_numerics": Feature(("megatron",), section="watching"),
}


_FORWARD = ("chunked_logps", "vision_once", "shared_prefix", "completion_logits")


def features_of(engine: Engine) -> tuple[str, ...]:
    """The names of an engine's features, in the order of the table."""
    return tuple(name for name, feature in FEATURES.items() if engine in feature.engines)


@dataclass(frozen=True)
class Features:
    """The features that a run with one of the engines has; a reason names its remedy after a semicolon.

    >>> features = Features("megatron").without(vision_once="the tower trains; --freeze_vit true")
    >>> "shared_prefix" in features, "vision_once" in features, "chunked_logps" in features
    (True, False, False)
    """

    engine: Engine
    why_off: Mapping[str, str] = field(default_factory=dict)
    why_idle: Mapping[str, str] = field(default_factory=dict)  # of features that have nothing to do

    def __contains__(self, name: str) -> bool:
        at_work = name not in self.why_off and name not in self.why_idle
        return at_work and self.engine in FEATURES[name].engines

    def without(self, **reasons: str) -> Features:
        """The same without the features that have a reason here; those already off keep their reason."""
        off = {name: why for name, why in reasons.items() if why} | dict(self.why_off)
        for name in features_of(self.engine):
            if (needed := FEATURES[name].needs) in off:
                off.setdefault(name, f"needs {needed}")
        return replace(self, why_off=off)

    def without_forward(self, reason: str) -> Features:
        """The same with ms-swift's forward: every feature that changes the pass is off, for this reason."""
        return self.without(**{name: reason for name in FEATURES if FEATURES[name].of_pass and name in self})

    @property
    def of_forward(self) -> list[str]:
        """Active features that change what a forward pass goes over, the lightest first."""
        return [name for name in _FORWARD if name in self]

    @property
    def stock_forward(self) -> bool:
        """True if no active feature changes what a forward pass goes over."""
        return not self.of_forward


def decided(engine: Engine, settings: Settings, reasons: Reasons, idle: Reasons | None = None) -> Features:
    """The features of a run: switched off, against a reason, idle, or on."""
    off = {
        name: switched_off(settings, engine, name) or reasons.get(name, str)() for name in features_of(engine)
    }
    features = Features(engine).without(**off)
    nothing_to_do = {name: why() for name, why in (idle or {}).items() if name not in features.why_off}
    return replace(features, why_idle={name: why for name, why in nothing_to_do.items() if why})


def switched_off(settings: Settings, engine: Engine, name: str) -> str:
    """The reason of a feature that the user has turned off; else empty."""
    feature = f"{engine}.{name}"
    return f"switched off; SWIFT_GRPO_EXT_DISABLE without {feature}" if settings.disables(feature) else ""
