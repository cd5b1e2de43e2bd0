"""Facts about vision-language families for the rest of the package, as data.

Code outside never asks for the name of a family, which is a row of `ENTRIES`, with a file in this folder
if more is known. Needs neither torch nor ms-swift.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.folders import read_json
from swift_grpo_ext.models import derived
from swift_grpo_ext.models.families import gemma, minicpmv, ovis2, qwen2
from swift_grpo_ext.models.family import Entry, Tiling
from swift_grpo_ext.models.family import VisionFamily as VisionFamily
from swift_grpo_ext.rewards.gold.frames import Frame

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def _counted_from_indicators(_config: PretrainedConfig) -> dict[str, object]:
    """Qwen-Omni's positions take each token that begins a medium for that medium (its ``get_rope_index``)."""
    return {"reads_indicators": True}


ENTRIES: tuple[Entry, ...] = (
    qwen2.FAMILY,
    ovis2.FAMILY,
    gemma.FAMILY,
    minicpmv.FAMILY,
    Entry(stem="qwen2_5_omni", frame="pixel_resized", override=_counted_from_indicators),
    Entry(stem="qwen3_omni", frame="norm1000", override=_counted_from_indicators),
    Entry(stem="qwen2_vl", frame="norm1000"),
    Entry(stem="qwen3", frame="norm1000"),
    Entry(stem="glm", frame="norm1000"),
    Entry(stem="internvl", frame="norm1000", tiling={"internvl": Tiling(12)}),
    Entry(stem="llava_onevision", frame=None, tiling={"llava_onevision": Tiling(9)}),
    Entry(stem="mistral3", frame="norm1000"),
    Entry(
        stem="kimi",  # its attention (MLA) is that of DeepSeek-V3, which is tried in its place
        frame="norm1",
        not_loaded={
            "kimi_vl": "ms-swift 4.6.0 takes its remote code with transformers < 4.49 only",
            "kimi_k25": "ms-swift 4.6.0 takes it with transformers < 5 only",
        },
    ),
    Entry(stem="", frame=None),  # everything else
)
FAMILIES: dict[str, VisionFamily] = {
    entry.described.family: entry.described for entry in ENTRIES if entry.described
}


def family_of(config_or_model_type: Any) -> VisionFamily | None:
    """Facts of a model: described in this folder, else derived from its config; None if too little is known.

    Of a config (or what holds it), with its ids; or of a name: ``model_type``, ms-swift's
    ``--model_type`` or an architecture, described ones only.
    """
    config = config_or_model_type
    if isinstance(config, str):
        named = (
            family
            for family in FAMILIES.values()
            if config in (family.family, family.host_model_type, family.architecture)
        )
        return next(named, None)
    if not hasattr(config, "model_type") and hasattr(config, "config"):
        config = config.config
    name = getattr(config, "model_type", "")
    known = derived.derive(config, FAMILIES.get(name))
    entry = _entry_of(name)
    if known is None:
        return None
    further = entry.override(config) if entry.override else {}
    return replace(known, **further, frame=entry.frame or known.frame)


def why_unknown(config: Any) -> str:
    """Reason why nothing is known of a config's family; empty if something is."""
    return "" if getattr(config, "model_type", "") in FAMILIES else derived.why_unknown(config)


def is_native(folder: str | Path) -> bool:
    """True if config.json names an architecture that transformers has itself and this package describes."""
    config = read_json(Path(folder) / "config.json")
    named = config.get("architectures") if isinstance(config, dict) else None
    return bool(set(named or ()) & {facts.architecture for facts in FAMILIES.values()})


def frame_of(config: object) -> Frame | None:
    """The frame in which the family of a config writes boxes and points, if it is known."""
    return _entry_of(getattr(config, "model_type", "")).frame


def tiling_of(model_type: str) -> Tiling | None:
    """How a family cuts images into tiles; None where it resizes them."""
    return _entry_of(model_type).tiling.get(model_type)


def _entry_of(model_type: str) -> Entry:
    return max(
        (entry for entry in ENTRIES if model_type.startswith(entry.stem)), key=lambda entry: len(entry.stem)
    )


def read_token_ids(config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids in whose place a model reads media; where nothing is known, all that are named after media."""
    facts = family_of(config)
    return forbidden_token_ids(config, tokenizer) if facts is None else facts.read_token_ids


def forbidden_token_ids(config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that a model must never write: placeholders of media and what stands around them."""
    facts = family_of(config)
    if facts is not None and facts.family in FAMILIES:
        return facts.forbidden_token_ids
    if facts is None and getattr(config, "vision_config", None) is None:
        return ()
    return tuple(sorted({*(facts.forbidden_token_ids if facts else ()), *derived.media_tokens(tokenizer)}))
