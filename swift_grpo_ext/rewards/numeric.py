"""Numbers read off charts, tables and instruments."""

from typing import Annotated, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.place import answer_of, read_gold
from swift_grpo_ext.rewards.values import number
from swift_grpo_ext.rewards.values.number import Quantity

GOLD = ("solution", "answer")
Tolerance: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


@reward(gold=GOLD, gold_text=lambda row, **_: read_gold(row, GOLD, lambda text: number.read(text) and text))
def numeric(
    completion: str,
    columns: Columns,
    *,
    relative_tolerance: Tolerance = 0.05,
    whole_tolerance: Tolerance = 0.0,
    absolute_tolerance: Annotated[float, Field(ge=0)] = 0.0,
) -> Outcome:
    r"""A number within tolerance: 1 if so, else 0. Whole golds are met exactly, others within 5 %.

    The answer is converted to the gold's unit. If only one of gold and answer has a percent sign, both
    readings of the bare number are allowed (12 or 0.12 for 12 %); if only one has a unit, the bare number is
    taken to be in it; bare degrees may be those of a temperature.

    Args:
        relative_tolerance: Allowed error as a fraction of the gold, where it is written with decimals, as a
            fraction or with a power of ten. 0 for exact.
        whole_tolerance: The same fraction where the gold is a whole number: 2008 is not 2019.
        absolute_tolerance: Allowed error in the gold's unit, if that is more.
    Gold: ``solution`` (or ``answer``): one number as answers write it.
    Raises:
        Unscorable: No gold, or one that is not one number.
    Rises with: Being within tolerance.
    Gaming:
        - Listing numbers, a range, a hedge: no number (test_several_numbers_are_no_number).
        - ``9**9**9`` and the like: nothing is evaluated (test_nothing_is_evaluated).
        - A number inside of an expression, ``24\pi`` for 24: nothing is taken out of one
          (test_nothing_is_taken_out_of_an_expression).
        - Another unit of the same dimension is converted, one of another dimension is wrong
          (test_units_are_converted).
    Source: Relaxed accuracy of PlotQA and ChartQA (arXiv 2203.10244), here for golds with decimals alone.
    Example:
        >>> get_reward("ext_numeric")("1,200", {"solution": "1230.5"})
        1.0
    """
    gold = read_gold(columns, GOLD, number.read)
    predicted = number.read(answer_of(completion, "figure"))
    relative = whole_tolerance if gold.whole else relative_tolerance
    return Outcome.of(float(is_near(predicted, gold, relative, absolute_tolerance)), predicted, gold)


def is_near(predicted: Quantity, gold: Quantity, relative: float, absolute: float) -> bool:
    """True if a number is within one of the tolerances."""
    expected = gold.written
    dimensions = {predicted.unit.dimension, gold.unit.dimension}
    if len(dimensions) == 1:
        readings = [gold.unit.from_base(predicted.value)]
    elif "" in dimensions or dimensions == {"angle", "temperature"}:  # a bare number, or mere degrees
        readings = [predicted.written]
    else:
        return False
    if dimensions == {"", "ratio"}:
        readings.append(predicted.written * (0.01 if predicted.unit.dimension else 100))
    rounding = 1e-9 * max(abs(expected), abs(gold.unit.from_base(0)))
    allowed = max(absolute, relative * abs(expected)) + rounding
    return min(abs(reading - expected) for reading in readings) <= allowed
