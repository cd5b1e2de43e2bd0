"""Numbers read off charts, tables and instruments."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_string
from swift_grpo_ext.rewards.gold.question import QUESTION, question_of
from swift_grpo_ext.rewards.reading.answer import normalise_short
from swift_grpo_ext.rewards.reading.numbers import Quantity, asked_in, quantities, stated_number

GOLD = ("solution", "answer")


def _gold_quantity(columns: Columns) -> Quantity:
    gold = gold_string(columns, GOLD)
    numbers = quantities(normalise_short(gold, fold=False))
    if len(numbers) != 1:
        raise Unscorable(f"gold {gold!r:.80} is not one number")
    return numbers[0]


@reward(gold=GOLD, reads=QUESTION, gold_text=lambda row, **_: _gold_quantity(row) and gold_string(row, GOLD))
def numeric(
    completion: str,
    columns: Columns,
    *,
    relative_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.05,
    absolute_tolerance: Annotated[float, Field(ge=0)] = 0.0,
    shaped: bool = False,
) -> float:
    r"""A number within tolerance, 0..1: 1 if so, else 0. The default is ChartQA's relaxed accuracy of 5 %.

    The number counts that the answer states: what follows "the answer is", what is in bold, what follows
    "is", else the last one; of "38 in 2018 and 42 in 2019" the part counts that names most of what the row's
    question names. "4 or 5", a bound ("more than 5"), a bare list of numbers and a denial are no answer. To a
    question for "million dollars", 42 and "42 million" are the same, and a bare gold is in the unit that the
    question asks for ("in metres"). Thousands
    separators, decimal commas, fractions, powers of
    ten, number words (English, Chinese), scale words (million, 万), currency and percent signs and units are
    read (km/h, kg/m³, 1 hour 30 minutes); the answer is converted to the gold's unit. If only one of gold and
    answer has a percent sign, both readings of the bare number are allowed (12 or 0.12 for 12 %); if only one
    has a unit, the bare number is taken to be in it; bare degrees may be those of a temperature.

    Args:
        relative_tolerance: Allowed error as a fraction of the gold. 0 for exact.
        absolute_tolerance: Allowed error in the gold's unit, if that is more.
        shaped: Outside of the tolerance, give 1 minus the relative error as a fraction, down to 0.
    Gold: ``solution`` (or ``answer``): one number, or text with exactly one number in it. The question is in
        ``question``, ``problem``, ``query`` or the last user turn of ``messages``, if anywhere.
    Raises:
        Unscorable: No gold, or not exactly one number in it.
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
    question = question_of(columns)
    predicted = stated_number(completion, question)
    if predicted is None:
        return 0.0
    scale, unit = asked_in(question)
    if not gold.unit.dimension:
        gold = replace(gold, unit=unit)
    readings = {predicted, replace(predicted, written=predicted.written / scale)}
    return max(
        _nearness(reading, gold, relative_tolerance, absolute_tolerance, shaped) for reading in readings
    )


def _nearness(predicted: Quantity, gold: Quantity, relative: float, absolute: float, shaped: bool) -> float:
    """1 within the tolerance; outside 0, or with `shaped` 1 minus the relative error, from 0."""
    wanted = gold.written
    dimensions = {quantity.unit.dimension or "ratio" * quantity.percent for quantity in (predicted, gold)}
    if "" in dimensions or dimensions == {"angle", "temperature"}:  # a bare number, or mere degrees
        readings = [predicted.written]
    elif len(dimensions) == 1:
        readings = [gold.unit.from_base(predicted.value)]
    else:
        return 0.0
    if predicted.percent != gold.percent:
        readings.append(predicted.written * (100 if predicted.percent else 0.01))
    rounding = 1e-9 * max(abs(wanted), abs(gold.unit.from_base(0)))
    allowed = max(absolute, relative * abs(wanted)) + rounding
    error = min(abs(reading - wanted) for reading in readings)
    if error <= allowed:
        return 1.0
    return max(0.0, 1.0 - error / abs(wanted)) if shaped and wanted else 0.0
