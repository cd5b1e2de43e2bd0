"""Numbers read off charts, tables and instruments; and mathematical equality, by Math-Verify."""

from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.reading.answer import normalise_short, short_answer
from swift_grpo_ext.rewards.reading.doubt import without_questions
from swift_grpo_ext.rewards.reading.numbers import (
    Quantity,
    as_temperature,
    durations,
    quantities,
    stated_quantity,
)

GOLD = ("solution", "answer")


def _gold_quantity(columns: Columns) -> Quantity:
    gold = gold_string(columns, GOLD)
    found = quantities(normalise_short(gold, fold=False))
    if len(found) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one number")
    return found[0]


@reward(gold=GOLD, gold_text=lambda row, **_: _gold_quantity(row) and gold_string(row, GOLD))
def numeric(
    completion: str,
    columns: Columns,
    *,
    relative_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.05,
    absolute_tolerance: Annotated[float, Field(ge=0)] = 0.0,
) -> float:
    r"""A number within tolerance: 1 if so, else 0. The default is ChartQA's relaxed accuracy of 5 %.

    The number counts that the answer states: what follows "the answer is", what is in bold, what follows
    "is", else the last one; "4 or 5" is no answer. Thousands separators, decimal commas, fractions, powers of
    ten, number words (English, Chinese), scale words (million, 万), currency and percent signs and units are
    read (km/h, kg/m³, 1 hour 30 minutes); the answer is converted to the gold's unit. If only one of gold and
    answer has a percent sign, both readings of the bare number are allowed (12 or 0.12 for 12 %); if only one
    has a unit, the bare number is taken to be in it; bare degrees may be those of a temperature. Beside a
    temperature 300 K are kelvin, beside a duration 1:30 is one.

    Args:
        relative_tolerance: Allowed error as a fraction of the gold. 0 for exact.
        absolute_tolerance: Allowed error in the gold's unit, if that is more.
    Gold: ``solution`` (or ``answer``): one number, or text with exactly one number in it.
    None: No gold, or not exactly one number in it.
    Rises with: Being within tolerance.
    Gaming:
        - Listing numbers: only the last one counts (test_a_list_of_numbers_is_its_last).
        - ``9**9**9`` and the like: nothing is evaluated (test_nothing_is_evaluated).
        - Another unit of the same dimension is converted, one of another dimension is wrong
          (test_units_are_converted).
    Source: Relaxed accuracy of PlotQA and ChartQA (arXiv 2203.10244).
    Example:
        >>> get_reward("ext_numeric")("about 1,200", {"solution": "1230"})
        1.0
    """
    gold = _gold_quantity(columns)
    answer = without_questions(short_answer(completion, fold=False) or "")
    texts = durations(answer) if gold.unit.dimension == "time" else [answer]
    found = [one for one in map(stated_quantity, texts) if one is not None]
    return float(any(_close(one, gold, relative_tolerance, absolute_tolerance) for one in found))


def _close(predicted: Quantity, gold: Quantity, relative: float, absolute: float) -> bool:
    if "temperature" in (predicted.unit.dimension, gold.unit.dimension):
        predicted, gold = as_temperature(predicted), as_temperature(gold)
    wanted, dimensions = gold.written, {predicted.unit.dimension, gold.unit.dimension}
    if "" in dimensions or dimensions == {"angle", "temperature"}:  # a bare number, or mere degrees
        readings = [predicted.written]
    elif len(dimensions) == 1:
        readings = [gold.unit.from_base(predicted.value)]
    else:
        return False
    if predicted.percent != gold.percent:
        readings.append(predicted.written * (100 if predicted.percent else 0.01))
    rounding = 1e-9 * max(abs(wanted), abs(gold.unit.from_base(0)))
    allowed = max(absolute, relative * abs(wanted)) + rounding
    return any(abs(reading - wanted) <= allowed for reading in readings)
