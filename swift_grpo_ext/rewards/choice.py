"""Multiple choice."""

import json
import string
from typing import Any, Literal

from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_value, listed, without_array
from swift_grpo_ext.rewards.reading.answer import normalise_short
from swift_grpo_ext.rewards.reading.options import parse_choice, plain, stated_options
from swift_grpo_ext.rewards.reading.words import OPTIONS

GOLD = ("solution", "answer")


def _options(columns: Columns) -> dict[str, str]:
    """Letter to text of the row's options; empty if the row lists none.

    Raises:
        Unscorable: The options are neither a list nor a mapping, nor JSON of one.
    """
    options: Any = without_array(columns.get("options")) or without_array(columns.get("choices")) or {}
    if isinstance(options, str):
        try:
            options = listed(options) or json.loads(options)
        except ValueError:
            raise Unscorable(f"options {options!r:.80} are neither a list nor JSON") from None
    if isinstance(options, (list, tuple)):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    if not isinstance(options, dict):
        raise Unscorable(f"options {options!r:.80} are neither a list nor a mapping")
    return {
        str(letter).strip().upper(): plain(OPTIONS.leading.sub("", str(text), count=1))
        for letter, text in options.items()
        if text is not None
    }


def _gold_letters(columns: Columns, options: dict[str, str]) -> frozenset[str]:
    gold = gold_value(columns, GOLD)
    parts = gold if isinstance(gold, (list, tuple)) else [gold]
    letters: set[str] = set()
    for part in parts:
        if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < len(options):
            letters.add(list(options)[part])
        else:
            letters |= parse_choice(normalise_short(str(part)), options)
    if not letters:
        raise Unscorable(f"gold {gold!r:.80} is no option")
    return frozenset(letters)


@reward(
    gold=GOLD,
    reads=("options", "choices"),
    gold_text=lambda row, **_: ", ".join(sorted(_gold_letters(row, _options(row)))),
)
def choice(completion: str, columns: Columns, *, multiple: Literal["f1", "exact"] = "f1") -> float:
    r"""The right option of a multiple-choice question: 1 if chosen, else 0.

    The answer may be the letter in any usual form (``B``, ``(b)``, ``B.``, ``**B**``, ``\boxed{B}``, ``The
    answer is B``, ``B. a dog``), or the option's text if the row lists its options; what follows
    "wait, no" takes back what stands before it. With several gold letters the score is the F1 of the chosen
    set against the gold set.

    Args:
        multiple: With several gold letters, ``f1`` gives partial credit and ``exact`` gives none.
    Gold: ``solution`` (or ``answer``): letter, option text, 0-based index, or a list of these. ``options``
        (or ``choices``): a list in the order of the letters, or a mapping letter to text.
    Raises:
        Unscorable: No gold, a gold that is none of the options, or options that cannot be read.
    Rises with: The share of right letters among those chosen and of chosen letters among the right ones.
    Gaming:
        - Naming every option: a single gold needs the exact set, several are scored by F1
          (test_naming_every_option_does_not_pay).
        - Naming the options one after the other in thinking or answers: only the last answer counts
          (test_last_answer_counts).
        - A letter with another option's text: contradicts itself, 0 (test_letter_and_text_must_agree).
        - The article "A" at the start of a sentence: not the letter A (test_article_is_no_letter).
    Source: Accuracy, and the set F1 of multi-label classification.
    Example:
        >>> get_reward("ext_choice")("So the answer is (b).", {"solution": "B"})
        1.0
    """
    options = _options(columns)
    gold = _gold_letters(columns, options)
    chosen = stated_options(completion, options)
    if len(gold) == 1 or multiple == "exact":
        return float(chosen == gold)
    return 2 * len(chosen & gold) / (len(chosen) + len(gold))
