"""Does the completion keep to the format that the prompt asks for? The formats are data."""

from dataclasses import dataclass
from typing import Literal, TypeAlias
from unicodedata import category

from swift_grpo_ext.rewards.answer import ANSWER, THINK, balanced_end
from swift_grpo_ext.rewards.contract import Columns, reward

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # fillers of Hangul, the empty cell of Braille: they show nothing


@dataclass(frozen=True)
class Block:
    """One part of a format."""

    opening: str  # the mark that opens it, "" where it starts at once
    closing: str  # the mark that closes it, "" where it runs to the next block or to the end
    loose: bool = False  # free text may stand before and after it
    written: str = ""  # its opening mark where the chat template wrote it: it must not come again


_THINK, _ANSWER = Block(*THINK), Block(*ANSWER)
_OPENED = Block("", THINK[1], written=THINK[0])
GRAMMARS: dict[str, tuple[Block, ...]] = {
    "think_answer": (_THINK, _ANSWER),
    "think": (_THINK, Block("", "")),
    "answer": (_ANSWER,),
    "opened_think_answer": (_OPENED, _ANSWER),
    "opened_think": (_OPENED, Block("", "")),
    "think_boxed": (_THINK, Block("\\boxed{", "}", loose=True)),
    "think_glm_box": (_THINK, Block("<|begin_of_box|>", "<|end_of_box|>", loose=True)),
    "react": (Block("Thought:", ""), Block("Action:", ""), Block("Action Input:", "")),
}
Grammar: TypeAlias = Literal[
    "think_answer", "think", "answer", "opened_think_answer", "opened_think", "think_boxed",
    "think_glm_box", "react",
]  # fmt: skip


def contents(text: str, blocks: tuple[Block, ...]) -> list[str] | None:
    """What stands in each block, stripped; None if the text does not keep to the format."""
    marks = {mark for block in blocks for mark in (block.opening, block.closing) if mark not in ("", "}")}
    if any(text.count(mark) != 1 for mark in marks) or any(b.written and b.written in text for b in blocks):
        return None
    found: list[str] = []
    rest = text.strip()
    for block, following in zip(blocks, [*(b.opening for b in blocks[1:]), ""], strict=True):
        start = rest.find(block.opening)
        if start < 0 or (start > 0 and not block.loose):
            return None
        rest = rest[start + len(block.opening) :]
        if block.closing == "}":
            end = balanced_end(rest)
        else:
            mark = block.closing or following
            end = rest.find(mark) if mark else len(rest)
        # Letters without width or ink and lone accents are nothing to see.
        if end < 0 or not any(category(one)[0] in "LNPS" and one not in _BLANK for one in rest[:end]):
            return None
        found.append(rest[:end].strip())
        rest = "" if block.loose else rest[end + len(block.closing) :].lstrip()
    return None if rest else found


@reward()
def format(completion: str, columns: Columns, *, grammar: Grammar = "think_answer") -> float:
    r"""The completion keeps to the format that the prompt asks for: 1, else 0.

    White space around and between the blocks is free, a trailing newline too. Every block must hold something
    visible, every mark must occur exactly once, and nothing may stand outside the blocks.

    Args:
        grammar: ``think_answer`` (``<think>..</think><answer>..</answer>``), ``think`` (then free text),
            ``answer``, ``opened_think_answer`` and ``opened_think`` (the chat template wrote ``<think>``),
            ``think_boxed`` (after the thinking, text with one ``\boxed{..}``), ``think_glm_box`` (the same
            with ``<|begin_of_box|>``), ``react`` (Thought, Action, Action Input).
    Gold: None needed.
    None: Never.
    Rises with: Keeping to the format.
    Gaming:
        - Empty blocks: 0 (test_empty_blocks_score_nothing).
        - Two answer blocks, or a block inside another: 0 (test_repeated_or_nested_blocks_score_nothing).
        - 200,000 characters of opening tags: linear time, 0 (test_a_flood_of_tags_is_linear).
    Source: The format reward of DeepSeek-R1 (arXiv 2501.12948), stricter where models found gaps.
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_format")("<think>1 + 1</think><answer>2</answer>")
        1.0
    """
    del columns
    return float(contents(completion, GRAMMARS[grammar]) is not None)
