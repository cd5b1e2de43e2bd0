"""Does the completion keep to the format that the prompt asks for? The formats are data."""

import json
import re
from typing import Literal, TypeAlias
from unicodedata import category

from swift_grpo_ext.rewards.contract import Columns, reward
from swift_grpo_ext.rewards.reading.answer import balanced_end, last_fenced, unwrapped
from swift_grpo_ext.rewards.reading.boxes import parse_regions
from swift_grpo_ext.rewards.reading.json_text import decoded
from swift_grpo_ext.rewards.reading.words import FORMATS

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # fillers of Hangul, the empty cell of Braille: they show nothing

GRAMMARS = FORMATS.grammars
Grammar: TypeAlias = Literal[
    "think_answer", "think", "answer", "opened_think_answer", "opened_think", "think_boxed",
    "think_glm_box", "react",
]  # fmt: skip


Content: TypeAlias = Literal["anything", "box", "json", "number", "letter"]
_SHORT = {
    "number": re.compile(r"[-+]?[$€£¥]?\d[\d,]{0,30}(?:\.\d{1,30})?\s?%?"),
    "letter": re.compile(r"\(?[A-Za-z]\)?\.?"),
}


def contents(text: str, grammar: tuple[str, ...]) -> list[str] | None:
    """What stands in each block, stripped; None if the text does not keep to the format."""
    marks = grammar[1::2]
    once = {*marks, "<think>"} if "</think>" in marks else {*marks}  # or the template wrote it
    if any(text.count(mark) != (mark in marks) for mark in once - {"}"}):
        return None
    blocks: list[str] = []
    for kind, mark in zip(grammar[::2], (*marks, ""), strict=True):
        end = balanced_end(text) if mark == "}" else text.find(mark) if mark else len(text)
        part = text[:end].strip()
        text = text[end + len(mark) :]
        # Letters without width or ink and lone accents are nothing to see.
        shown = any(category(letter)[0] in "LNPS" and letter not in _BLANK for letter in part)
        if end < 0 or (kind == "" and part) or (kind == "..." and not shown):
            return None
        blocks += [part] if kind == "..." else []
    return blocks


@reward()
def format(
    completion: str,
    columns: Columns,
    *,
    grammar: Grammar = "think_answer",
    inside: Content = "anything",
    keys: str = "",
) -> float:
    r"""The completion keeps to the format that the prompt asks for: 1, else 0.

    White space around and between the blocks is free, a trailing newline too. Every block must hold something
    visible, every mark must occur exactly once, and nothing may stand outside the blocks.

    Args:
        grammar: ``think_answer`` (``<think>..</think><answer>..</answer>``), ``think`` (then free text),
            ``answer``, ``opened_think_answer`` and ``opened_think`` (the chat template wrote ``<think>``),
            ``think_boxed`` (after the thinking, text with one ``\boxed{..}``), ``think_glm_box`` (the same
            with ``<|begin_of_box|>``), ``react`` (Thought, Action, Action Input).
        inside: What the last block must hold: ``anything``; ``box``, at least one box; ``json``, a JSON
            object or list, fenced or not; ``number``, a number and nothing else; ``letter``, one letter.
        keys: Text with names between commas: with ``json``, keys that the object, or each object of the list,
            must have.
    Gold: None needed.
    Rises with: Keeping to the format.
    Gaming:
        - Empty blocks: 0 (test_empty_blocks_score_nothing).
        - Two answer blocks, or a block inside another: 0 (test_repeated_or_nested_blocks_score_nothing).
        - Blocks that hold something else than asked for: 0 (test_a_block_must_hold_what_is_asked_for).
        - 200,000 characters of opening tags: linear time, 0 (test_a_flood_of_tags_is_linear).
    Source: The format reward of DeepSeek-R1 (arXiv 2501.12948), stricter where models found gaps.
    Example:
        >>> get_reward("ext_format")("<think>1 + 1</think><answer>2</answer>")
        1.0
    """
    del columns
    blocks = contents(completion, GRAMMARS[grammar])
    return float(blocks is not None and holds(blocks[-1], inside, keys))


def holds(text: str, inside: Content, keys: str = "") -> bool:
    """Whether a block holds what it should; `keys` are those of its JSON, between commas."""
    if inside == "box":
        return any(region.box is not None for region in parse_regions(text, "box"))
    if inside == "json":
        values = decoded(last_fenced(text).strip(), json.loads)
        items = values[0] if values and isinstance(values[0], list) else values
        wanted = {key.strip() for key in keys.split(",") if key.strip()}
        objects = [item for item in items if isinstance(item, dict)]
        is_json = bool(values) and isinstance(values[0], (dict, list))
        return is_json and (
            not wanted or (0 < len(objects) == len(items) and all(wanted <= item.keys() for item in objects))
        )
    pattern = _SHORT.get(inside)
    return pattern is None or pattern.fullmatch(unwrapped(text)) is not None
