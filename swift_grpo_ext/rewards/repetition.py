"""Repetition in a completion: looping ones are punished."""

import re
from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Outcome, reward
from swift_grpo_ext.rewards.values.text import tokenise

MAX_TOKENS = 50_000  # longer completions are judged by their end, where loops are
MAX_WORD = 64  # characters without a space that are still one word

_STRETCH = re.compile(rf"(\S{{{MAX_WORD + 1},}}|\W{{{MAX_WORD + 1},}})")


def _tokens(text: str) -> list[str]:
    """Words; characters in scripts without spaces, and in stretches of hardly any words."""
    tokens: list[str] = []
    for part in _STRETCH.split(text):
        words = tokenise(part)
        tokens += words if len(part) <= MAX_WORD * len(words) else part
    return tokens


@reward(
    low=-1.0,
    high=0.0,
    host_defaults={"ngram": "repetition_n_grams", "max_penalty": "repetition_max_penalty"},
)
def repetition(
    completion: str,
    columns: Columns,
    *,
    ngram: Annotated[int, Field(ge=1, le=100)] = 3,
    max_penalty: Annotated[float, Field(ge=-1, le=0)] = -1.0,
) -> Outcome:
    """Penalty for repeating oneself, -1..0: minus the share of n-grams that occurred before.

    It is scaled so that endless repetition scores `max_penalty`. N-grams are of words; in scripts without
    spaces, of characters.

    Args:
        ngram: Length of the n-grams in words, or characters; by default ``--repetition_n_grams``.
        max_penalty: Score of endless repetition; by default ``--repetition_max_penalty``.
    Gold: None needed.
    Rises with: Fewer repeated n-grams.
    Gaming:
        - Repeating without spaces in Chinese: counted by character (test_chinese_repeats).
        - Repeating letters without spaces, or signs, emoji, line breaks: counted by character where a stretch
          has more than 64 to a word (test_a_loop_without_spaces_repeats) (test_a_loop_without_words_repeats).
        - A short completion has nothing to repeat and scores 0, the best: use it with a reward for the task
          (test_short_text_has_nothing_to_repeat).
    Source: The repetition penalty of Yeo et al. (arXiv 2502.03373).
    Example:
        >>> get_reward("ext_repetition")("no no no no")
        -0.5
    """
    del columns
    tokens = _tokens(completion[-8 * MAX_TOKENS :])[-MAX_TOKENS:]
    total = len(tokens) - ngram + 1
    if total < 1:
        return Outcome(0.0, "nothing to repeat", read=f"{len(tokens)} tokens")
    distinct = len(set(zip(*(tokens[start : start + total] for start in range(ngram)), strict=True)))
    share = 1 - distinct / total
    return Outcome(
        max_penalty * share or 0.0,
        f"{share:.0%} of its {ngram}-grams stood before",
        read=f"{len(tokens)} tokens",
    )
