"""Mathematical equality, by Math-Verify."""

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.place import answer_of, read_gold
from swift_grpo_ext.rewards.values import mathematics

GOLD = ("solution", "answer")


def _gold(columns: Columns) -> str:
    """The gold in LaTeX.

    Raises:
        Unscorable: Math-Verify reads no expression in it.
    """
    gold = read_gold(columns, GOLD, mathematics.read)
    if all(isinstance(part, str) for part in mathematics.parsed(gold)):
        raise Unscorable(f"gold {gold!r:.80} is not a {mathematics.GRAMMAR}")
    return gold


@reward(gold=GOLD, cost="process", gold_text=lambda row, **_: f"${_gold(row)}$")
def math(completion: str, columns: Columns) -> Outcome:
    r"""Mathematical equality with the gold: 1 if equal, else 0.

    Runs in a child process with a hard limit: an answer that cannot be checked within it is wrong. A
    direct call from Python has no limit.

    Gold: ``solution`` (or ``answer``): an expression, with or without dollar signs or a box.
    Raises:
        Unscorable: No gold, or one that Math-Verify cannot read.
    Rises with: Being right.
    Gaming:
        - Several boxes: those that stand in the last line are a set, of which none may be wrong
          (test_the_last_box_counts).
        - An equation that is wrong but for its last side, ``11 = 12``: every side without a letter must be
          right (test_a_wrong_equation_is_wrong).
        - "Not 12", ``\\neq 12``: a denial is not the value (test_a_denial_is_not_the_value).
    Source: Math-Verify.
    Example:
        >>> get_reward("ext_math")(r"\boxed{0.5}", {"solution": r"\frac{1}{2}"})
        1.0
    """
    gold = _gold(columns)
    answer = mathematics.read(answer_of(completion, "several"))
    return Outcome.of(float(mathematics.equal(gold, answer)), answer, gold)
