"""The names of all rewards, and the module that each lives in; a reward is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from swift_grpo_ext.errors import RewardError, nearest
from swift_grpo_ext.rewards.contract import Reward

PREFIX = "ext_"

# Name without its prefix (also the function's name) to the module of its family.
FAMILIES: dict[str, str] = {
    "iou": "grounding",
    "giou": "grounding",
    "detection_f1": "detection",
    "detection_map": "detection",
    "point_in_box": "pointing",
    "click": "click",
    "segmentation_points": "segmentation",
    "temporal_iou": "temporal",
    "count": "counting",
    "count_shaped": "counting",
    "choice": "choice",
    "yes_no": "yes_no",
    "numeric": "numeric",
    "math": "math",
    "ocr": "ocr",
    "wer": "ocr",
    "anls": "ocr",
    "table": "table",
    "json_schema": "structured",
    "text_f1": "text",
    "rouge": "text",
    "format": "format",
    "overlong": "length",
    "cosine": "length",
    "repetition": "repetitive",
    "judge": "judge",
}

NAMES: tuple[str, ...] = tuple(PREFIX + name for name in FAMILIES)


def get_reward(name: str) -> Reward:
    """The reward of this name.

    Raises:
        RewardError: No such reward; the nearest name is given.
    """
    short = name.removeprefix(PREFIX)
    if short not in FAMILIES or not name.startswith(PREFIX):
        raise RewardError(f"unknown reward {name!r}", fix=f"did you mean {nearest(name, NAMES)!r}?")
    found = getattr(import_module(f"swift_grpo_ext.rewards.{FAMILIES[short]}"), short)
    assert isinstance(found, Reward)
    return found


def all_rewards() -> dict[str, Reward]:
    """Every reward of the catalogue, by name."""
    return {name: get_reward(name) for name in NAMES}
