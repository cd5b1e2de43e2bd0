"""The names of all rewards, and the module that each lives in; a reward is imported when it is asked for."""

import re
from collections.abc import Iterable
from importlib import import_module

from swift_grpo_ext.errors import RewardError, nearest
from swift_grpo_ext.rewards.contract import Reward
from swift_grpo_ext.rewards.json_text import decoded, strict

PREFIX = "ext_"
_PARAMETER = re.compile(r",(?=\s{0,4}\w{1,40}\s{0,4}=)")

# Name without its prefix (also the function's name) to its module.
MODULES: dict[str, str] = {
    name: module
    for module, names in {
        "grounding": "iou giou point_in_box",
        "detection": "detection_f1",
        "click": "click",
        "tool_use": "tool_call",
        "temporal": "temporal_iou",
        "counting": "count count_shaped",
        "choice": "choice",
        "yes_no": "yes_no",
        "numeric": "numeric",
        "math_equality": "math",
        "mixed": "answer",
        "ocr": "ocr wer anls",
        "text_overlap": "text_f1 rouge",
        "table": "table",
        "json_schema": "json_schema",
        "format": "format",
        "repetition": "repetition",
        "judge": "judge",
    }.items()
    for name in names.split()
}

NAMES: tuple[str, ...] = tuple(PREFIX + name for name in MODULES)
# Rewards that are gone, and what to do instead.
GONE = {
    "ext_cosine": "ms-swift's own: --reward_funcs cosine, with --cosine_max_len at its default",
    "ext_overlong": "ms-swift's own: --reward_funcs soft_overlong --soft_cache_length 256",
    "ext_segmentation_points": "ext_iou for the boxes, ext_point_in_box for points in them",
}


def meant_by(name: str, known: Iterable[str], cutoff: float = 0.0) -> str:
    """Advice on an unknown reward name: what replaces one that is gone, else the nearest name; or empty."""
    close = nearest(name, known, cutoff)
    return GONE.get(name) or (f"did you mean {close!r}?" if close else "")


def get_reward(name: str) -> Reward:
    """The reward of this name.

    Raises:
        RewardError: The catalogue has no reward of this name; the nearest name is given.
    """
    short = name.removeprefix(PREFIX)
    if short not in MODULES or not name.startswith(PREFIX):
        raise RewardError(f"unknown reward {name!r}", fix=meant_by(name, NAMES))
    reward = getattr(import_module(f"swift_grpo_ext.rewards.{MODULES[short]}"), short)
    assert isinstance(reward, Reward)
    return reward


def all_rewards() -> dict[str, Reward]:
    """Every reward of the catalogue, by name."""
    return {name: get_reward(name) for name in NAMES}


def split_form(text: str) -> tuple[str, dict[str, object]]:
    """Name and checked parameters of ``ext_iou:frame=norm1000,order=yxyx``; none for other names.

    Raises:
        SettingsError: The reward has no such parameter, or the value does not fit it.
        RewardError: The catalogue has no reward of this name.
    """
    name, colon, assignments = text.partition(":")
    if not colon or not name.startswith(PREFIX):
        return text, {}
    reward = get_reward(name)
    parameters = {}
    for part in _PARAMETER.split(assignments):
        key, _, value = part.partition("=")
        parameters[key.strip()] = decoded(value, strict, otherwise=value.strip())
    return name, reward.declared.checked(parameters)
