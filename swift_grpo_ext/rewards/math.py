"""Mathematical equality, by Math-Verify."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from swift_grpo_ext.rewards.answer import extract_answer, last_boxed
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_string

GOLD = ("solution", "answer")
MAX_CHARS = 4_096

# Between dollar signs Math-Verify reads words as products of letters, and nothing as the empty set.
_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3}|\A[\s{}]*\Z|\A\s*[Nn]/[Aa]\s*\Z")


def _parse(text: str) -> list[Any]:
    """Math-Verify's reading of a text; without its own time limit, which needs the main thread."""
    from math_verify import parse

    boxed = last_boxed(text)
    if boxed is not None:
        text = f"\\boxed{{{boxed}}}"
    return parse(text, parsing_timeout=None) if len(text) <= MAX_CHARS else []


@lru_cache(maxsize=1024)
def _parse_gold(text: str) -> tuple[Any, ...]:
    """The gold, read as it stands, else as LaTeX that lacks its dollar signs."""
    found = _parse(text)
    if found or _WORDS.search(text):
        return tuple(found)
    found = _parse(_in_dollars(text))
    # What Math-Verify cannot read between dollar signs it keeps as text, whatever that is.
    return () if all(isinstance(part, str) for part in found) else tuple(found)


def _in_dollars(text: str) -> str:
    return f"${text}$"


def _gold_expression(columns: Columns) -> tuple[Any, ...]:
    text = gold_string(columns, GOLD)
    parsed = _parse_gold(text)
    if not parsed:
        raise Unscorable(f"gold {text!r:.80} is no mathematical expression")
    return parsed


def _gold_math_text(columns: Columns, **_: Any) -> str:
    text = gold_string(columns, GOLD)
    return text if _parse(text) else _in_dollars(text)


@reward(gold=GOLD, cost="process", gold_text=_gold_math_text)
def math(completion: str, columns: Columns) -> float:
    r"""Mathematical equality with the gold: 1 if equal, else 0.

    The last ``\boxed{..}`` of the answer counts, else what Math-Verify finds in it. Runs in a child process
    with a hard limit: an answer that cannot be checked within it is wrong. Called directly from Python there
    is no limit.

    Gold:
        ``solution`` (or ``answer``): an expression, with or without dollar signs or a box.

    None:
        No gold, or one that Math-Verify cannot read.

    Rises with:
        Being right.

    Gaming:
        - Several boxes: only the last one counts (test_the_last_box_counts).

    Frame:
        None.

    Source:
        Math-Verify.
    """
    from math_verify import verify

    gold = _gold_expression(columns)
    answer = extract_answer(completion)
    parsed = _parse(answer) if answer else []
    return float(bool(parsed) and verify(list(gold), parsed, timeout_seconds=None))
