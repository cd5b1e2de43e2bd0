"""Multiple choice."""

import re
import string
from collections.abc import Mapping
from typing import Any

from swift_grpo_ext.rewards.contract import (
    Columns,
    Outcome,
    Unscorable,
    as_gold,
    gold_value,
    restored,
    reward,
)
from swift_grpo_ext.rewards.json_text import decoded, literal, strict
from swift_grpo_ext.rewards.place import answer_of, bare_gold, narrow
from swift_grpo_ext.rewards.values.choice import read, read_all

GOLD = ("solution", "answer")
_MARKED = re.compile(r"\s*\(?(\w{1,8})[).:：、]\s*")  # "(B) a dog"


def options_of(columns: Columns) -> dict[str, str]:
    """Letter to text of the row's options, "B. a dog" without the B; empty if the row lists none.

    Raises:
        Unscorable: The options are neither a list nor a mapping, nor a text of one.
    """
    options: Any = restored(columns.get("options")) or restored(columns.get("choices")) or {}
    options = decoded(options, strict, literal, otherwise=options)
    if isinstance(options, list):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    if not isinstance(options, Mapping):
        raise Unscorable(f"options {options!r:.80} are neither a list nor a mapping, nor JSON of one")
    listed = {str(letter).strip().upper(): str(text) for letter, text in options.items() if text is not None}
    return {letter: narrow(_without_mark(text, letter)) for letter, text in listed.items()}


def _without_mark(text: str, letter: str) -> str:
    """An option's text without its own letter before it: "(B) a dog"."""
    mark = _MARKED.match(text)
    return text[mark.end() :] if mark and mark[1] == letter else text


def _gold_letters(columns: Columns, options: dict[str, str]) -> frozenset[str]:
    gold = gold_value(columns, GOLD)
    letters: set[str] = set()
    for part in gold if isinstance(gold, list) else [gold]:
        if type(part) is int and 0 <= part < len(options):
            letters.add(list(options)[part])
            continue
        letters |= as_gold(read_all, bare_gold(str(part)), options)
    return frozenset(letters)


@reward(
    gold=GOLD,
    reads=("options", "choices"),
    gold_text=lambda row, **_: ", ".join(sorted(_gold_letters(row, options_of(row)))),
)
def choice(completion: str, columns: Columns) -> Outcome:
    r"""The right option of a multiple-choice question: 1 if chosen, else 0.

    With several gold letters the score is the F1 of the chosen set against the gold set.

    Gold: ``solution`` (or ``answer``): an option as answers write it, a 0-based index, or a list of these.
        ``options`` (or ``choices``): a list in the order of the letters, or a mapping letter to text.
    Raises:
        Unscorable: No gold, a gold that is not one of the options, or options that cannot be read.
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
        >>> get_reward("ext_choice")("The answer is (b).", {"solution": "B"})
        1.0
    """
    options = options_of(columns)
    gold = _gold_letters(columns, options)
    answer = answer_of(completion, "leading")
    chosen = read_all(answer, options) if len(gold) > 1 else frozenset([read(answer, options)])
    f1 = 2 * len(chosen & gold) / (len(chosen) + len(gold))
    return Outcome.of(f1, ", ".join(sorted(chosen)), ", ".join(sorted(gold)))
