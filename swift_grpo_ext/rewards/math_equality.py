"""Mathematical equality, by Math-Verify."""

import re
from functools import lru_cache

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.reading.answer import extract_answer, visible
from swift_grpo_ext.rewards.reading.assertion import asserted
from swift_grpo_ext.rewards.reading.mathematics import (
    answer_reading,
    constant_sides,
    denies,
    gold_reading,
    joined_boxes,
)

GOLD = ("solution", "answer")


# "$A = \\pi r^2 = 36\\pi$": what it comes to
_CHAIN = re.compile(r"\$\s*[A-Za-z](?:_\{?\w{1,4}\}?)?\s*=[^$]{1,400}=([^=$]{1,200})\$")
ROUNDING = 0.01  # relative
MAX_CHARS = 4_096  # of an expression that Math-Verify is given


_DECIMAL_COMMA = re.compile(r"\$-?\d+, ?\d+\$")


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def _parse(text: str) -> list[object]:
    """Math-Verify's reading of a text; without its own time limit, which needs the main thread."""
    from math_verify import parse

    return parse(text, parsing_timeout=None) if len(text) <= MAX_CHARS else []


@lru_cache(maxsize=1024)
def _parse_gold(text: str) -> tuple[object, ...]:
    """The gold; nothing if Math-Verify would keep it as text or pick one of several numbers out of prose."""
    reading = gold_reading(text)
    parts = _parse(reading)
    prose = not re.search(r"[$\\]", reading)
    if all(isinstance(part, str) for part in parts) or (prose and len(_NUMBER.findall(reading)) > 1):
        return ()
    return tuple(parts)


@reward(gold=GOLD, cost="process", gold_text=lambda row, **_: gold_reading(gold_string(row, GOLD)))
def math(completion: str, columns: Columns) -> float:
    r"""Mathematical equality with the gold: 1 if equal, else 0.

    The last ``\boxed{..}`` of the answer counts, else what Math-Verify finds in it. Runs in a child process
    with a hard limit: an answer that cannot be checked within it is wrong. Called directly from Python there
    is no limit.

    Gold: ``solution`` (or ``answer``): an expression, with or without dollar signs or a box.
    Raises:
        Unscorable: No gold, or one that Math-Verify cannot read.
    Rises with: Being right.
    Gaming:
        - Several boxes: only the last one counts (test_the_last_box_counts).
        - An equation that is wrong but for its last side, ``11 = 12``: every side without a letter must be
          right (test_a_wrong_equation_is_wrong).
        - "Not 12", ``\\neq 12``: a denial is not the value (test_a_denial_is_not_the_value).
    Source: Math-Verify.
    Example:
        >>> get_reward("ext_math")(r"\boxed{0.5}", {"solution": r"\frac{1}{2}"})
        1.0
    """
    from math_verify import verify

    text = gold_string(columns, GOLD)
    if not (gold := _parse_gold(text)):
        raise Unscorable(f"gold {text!r:.80} is no mathematical expression, or several in prose: box one")
    answer = asserted(extract_answer(completion) or "")
    if not answer or len(answer) > MAX_CHARS:
        return 0.0
    answer = visible(answer)
    readings = [answer_reading(answer)]
    if denies(answer, readings[0]) and not denies(text, gold_reading(text)):
        return 0.0
    if type(gold[0]).__name__ in ("FiniteSet", "Tuple") and (joined := joined_boxes(answer)):
        readings.append(f"$\\{{{joined}\\}}$")
    if type(gold[0]).__name__ == "Float" and _DECIMAL_COMMA.fullmatch(readings[0]):
        readings.append(readings[0].replace(",", "."))
    if chain := _CHAIN.fullmatch(readings[0]):
        readings.append(f"${chain[1]}$")
    parsed = [value for value in map(_parse, readings) if value]
    options = {"timeout_seconds": None, "allow_set_relation_comp": True}  # x < 3 for (-oo, 3), too
    if not any(verify(list(gold), value, **options) for value in parsed):
        return 0.0
    sides = [] if "=" in text else constant_sides(readings[0])
    return float(all(verify(list(gold), side, **options) or _near(side, gold) for side in map(_parse, sides)))


def _near(side: list[object], gold: tuple[object, ...]) -> bool:
    """Whether a side of an equation is the gold but for rounding: 22/7 = 3.14."""
    try:
        found, wanted = (float(value) for value in (side[0], gold[0]))  # type: ignore[arg-type]
    except (TypeError, ValueError, IndexError, OverflowError):
        return not side
    return abs(found - wanted) <= ROUNDING * abs(wanted)
