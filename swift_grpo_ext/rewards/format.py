"""Checks that a completion keeps to the format that the prompt asks for; the formats are data."""

import re
from typing import Literal, TypeAlias
from unicodedata import category

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.place import closed_at

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # fillers of Hangul, the empty cell of Braille: they show nothing

# Blocks and the marks between them: "..." must hold something, "?" may, "-" may not, "...}" to its brace.
GRAMMARS: dict[str, str] = {
    "think_answer": "- <think> ... </think> - <answer> ... </answer> -",
    "think": "- <think> ... </think> ...",
    "answer": "- <answer> ... </answer> -",
    "opened_think_answer": "... </think> - <answer> ... </answer> -",
    "opened_think": "... </think> ...",
    "think_boxed": "- <think> ... </think> ? \\boxed{ ...}",
    "think_glm_box": "- <think> ... </think> ? <|begin_of_box|> ... <|end_of_box|> ?",
}
Grammar: TypeAlias = Literal[
    "think_answer", "think", "answer", "opened_think_answer", "opened_think", "think_boxed",
    "think_glm_box",
]  # fmt: skip


def keeps_to(text: str, grammar: str) -> bool:
    """True if a text has every mark once, in their order, and the blocks between them are as they should."""
    parts = grammar.split()
    kinds, marks = parts[::2], parts[1::2]
    # Where a thought ends, <think> may not stand a second time, also if the chat template wrote the first.
    watched = {*marks, "<think>"} if "</think>" in marks else marks
    found = re.split(f"({'|'.join(map(re.escape, watched))})", text)
    return found[1::2] == marks and all(map(_fits, found[::2], kinds))


def _fits(block: str, kind: str) -> bool:
    if kind == "?":
        return True
    if kind == "-":
        return not block.strip()
    if kind == "...}":
        end = closed_at(block)
        block = "" if end is None else block[:end]
    # Invisible characters and lone accents do not count as content.
    return any(category(letter)[0] in "LNPS" and letter not in _BLANK for letter in block)


@reward()
def format(completion: str, columns: Columns, *, grammar: Grammar = "think_answer") -> Outcome:
    r"""The completion keeps to the format that the prompt asks for: 1, else 0.

    White space around and between the blocks is free, a trailing newline too. Every block must hold something
    visible, every mark must occur exactly once, and nothing may stand outside the blocks.

    Args:
        grammar: ``think_answer`` (``<think>..</think><answer>..</answer>``), ``think`` (then free text),
            ``answer``, ``opened_think_answer`` and ``opened_think`` (the chat template wrote ``<think>``),
            ``think_boxed`` (after the thinking, text with one ``\boxed{..}``), ``think_glm_box`` (the same
            with ``<|begin_of_box|>``).
    Gold: None needed.
    Rises with: Keeping to the format.
    Gaming:
        - Empty blocks: 0 (test_empty_blocks_score_nothing).
        - Two answer blocks, or a block inside another: 0 (test_repeated_or_nested_blocks_score_nothing).
        - Any text in the blocks: use it with the reward of the task, which reads the answer
          (test_what_the_blocks_hold_is_not_read).
        - 200,000 characters of opening tags: linear time, 0 (test_a_flood_of_tags_is_linear).
    Source: The format reward of DeepSeek-R1 (arXiv 2501.12948), stricter where models found gaps.
    Example:
        >>> get_reward("ext_format")("<think>1 + 1</think><answer>2</answer>")
        1.0
    """
    del columns
    if keeps_to(completion, GRAMMARS[grammar]):
        return Outcome(1.0, read=grammar)
    return Outcome(0.0, f"not in the form {GRAMMARS[grammar].replace('- ', '').removesuffix(' -')}")
