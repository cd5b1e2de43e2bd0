"""Checks that a completion keeps to the format that the prompt asks for; the formats are data."""

from collections.abc import Callable
from typing import Literal, TypeAlias
from unicodedata import category

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unread, reward
from swift_grpo_ext.rewards.json_text import decoded, strict
from swift_grpo_ext.rewards.place import closed_at, last_fenced, unwrapped
from swift_grpo_ext.rewards.values import choice, count, number, regions, yes_no

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # fillers of Hangul, the empty cell of Braille: they show nothing

# Marks and what stands between them: "..." is a block that must hold something, "?" one that may.
GRAMMARS: dict[str, str] = {
    "think_answer": "<think> + ... + </think> + <answer> + ... + </answer>",
    "think": "<think> + ... + </think> + ...",
    "answer": "<answer> + ... + </answer>",
    "opened_think_answer": "... + </think> + <answer> + ... + </answer>",
    "opened_think": "... + </think> + ...",
    "think_boxed": "<think> + ... + </think> + ? + \\boxed{ + ... + } + ?",
    "think_glm_box": "<think> + ... + </think> + ? + <|begin_of_box|> + ... + <|end_of_box|> + ?",
    "react": "Thought: + ... + Action: + ... + Action Input: + ...",
}
_BLOCKS = ("...", "?")
Grammar: TypeAlias = Literal[
    "think_answer", "think", "answer", "opened_think_answer", "opened_think", "think_boxed",
    "think_glm_box", "react",
]  # fmt: skip
Content: TypeAlias = Literal["anything", "box", "json", "number", "count", "yes_no", "letter"]
_READ: dict[str, Callable[[str], object]] = {
    "box": lambda text: regions.read(text, "box"),
    "number": number.read,
    "count": count.read,
    "yes_no": yes_no.read,
    "letter": lambda text: choice.read(text, {}),
}


def contents(text: str, grammar: str) -> list[str] | None:
    """The stripped text of each block "..."; None if the text does not keep to the format."""
    parts = grammar.split(" + ")
    marks = {part for part in parts if part not in _BLOCKS}
    once = {*marks, "<think>"} if "</think>" in marks else marks  # not in the grammar: the template wrote it
    if any(text.count(mark) != (mark in marks) for mark in once - {"}"}):
        return None
    blocks: list[str] = []
    kind = ""  # the block before the next mark, if there is one
    for mark in (*parts, ""):
        if mark in _BLOCKS:
            kind = mark
            continue
        end = closed_at(text) if mark == "}" else text.find(mark) if mark else len(text)
        part = text[:end].strip()
        # Invisible characters and lone accents do not count as content.
        shown = any(category(letter)[0] in "LNPS" and letter not in _BLANK for letter in part)
        if end is None or end < 0 or (kind == "" and part) or (kind == "..." and not shown):
            return None
        blocks += [part] if kind == "..." else []
        text = text[end + len(mark) :]
        kind = ""
    return blocks


@reward()
def format(
    completion: str,
    columns: Columns,
    *,
    grammar: Grammar = "think_answer",
    inside: Content = "anything",
) -> Outcome:
    r"""The completion keeps to the format that the prompt asks for: 1, else 0.

    White space around and between the blocks is free, a trailing newline too. Every block must hold something
    visible, every mark must occur exactly once, and nothing may stand outside the blocks.

    Args:
        grammar: ``think_answer`` (``<think>..</think><answer>..</answer>``), ``think`` (then free text),
            ``answer``, ``opened_think_answer`` and ``opened_think`` (the chat template wrote ``<think>``),
            ``think_boxed`` (after the thinking, text with one ``\boxed{..}``), ``think_glm_box`` (the same
            with ``<|begin_of_box|>``), ``react`` (Thought, Action, Action Input).
        inside: What the last block must hold: ``anything``; ``box``, ``number``, ``count``, ``yes_no`` and
            ``letter``, as `ext_iou`, `ext_numeric`, `ext_count`, `ext_yes_no` and `ext_choice` read them;
            ``json``, a JSON object or list, fenced or not; `ext_json_schema` checks its keys.
    Gold: None needed.
    Rises with: Keeping to the format.
    Gaming:
        - Empty blocks: 0 (test_empty_blocks_score_nothing).
        - Two answer blocks, or a block inside another: 0 (test_repeated_or_nested_blocks_score_nothing).
        - Blocks that hold something other than asked for: 0 (test_a_block_must_hold_what_is_asked_for).
        - 200,000 characters of opening tags: linear time, 0 (test_a_flood_of_tags_is_linear).
    Source: The format reward of DeepSeek-R1 (arXiv 2501.12948), stricter where models found gaps.
    Example:
        >>> get_reward("ext_format")("<think>1 + 1</think><answer>2</answer>")
        1.0
    """
    del columns
    blocks = contents(completion, GRAMMARS[grammar])
    if blocks is None:
        return Outcome(0.0, f"not in the form {GRAMMARS[grammar].replace(' + ', ' ')}")
    if holds(blocks[-1], inside):
        return Outcome(1.0, read=grammar)
    return Outcome(0.0, f"the last block holds no {inside}: {blocks[-1][:80]!r}")


def holds(text: str, inside: Content) -> bool:
    """True if a block holds what ``inside`` asks for."""
    if inside == "json":
        return isinstance(decoded(last_fenced(text), strict), (dict, list))
    try:
        return inside == "anything" or _READ[inside](unwrapped(text)) is not None
    except Unread:
        return False
