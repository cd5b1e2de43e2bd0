"""Length of the completion, and repetition in it: overlong and looping ones are punished."""

import math
from typing import Annotated, TypeAlias

from pydantic import Field

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward

TOKENS_COLUMN = "response_token_ids"
Value: TypeAlias = Annotated[float, Field(ge=-1, le=1)]


def completion_tokens(completion: str, columns: Columns) -> int:
    """Number of tokens of the completion over all turns; unscorable without token ids.

    Raises:
        Unscorable: The row does not hold the ids.
    """
    ids = columns.get(TOKENS_COLUMN)
    if not isinstance(ids, (list, tuple)) or (completion and not ids):
        raise Unscorable(f"no column {TOKENS_COLUMN}, which ms-swift fills during training")
    return sum(len(turn) if isinstance(turn, (list, tuple)) else 1 for turn in ids)


@reward(
    low=-1.0,
    high=0.0,
    reads=(TOKENS_COLUMN,),
    host_defaults={
        "max_tokens": ("soft_max_length", "max_completion_length"),
        "cache_tokens": ("soft_cache_length",),
    },
)
def overlong(
    completion: str,
    columns: Columns,
    *,
    max_tokens: Annotated[int | None, Field(ge=1)] = None,
    cache_tokens: Annotated[int | None, Field(ge=1)] = None,
) -> Outcome:
    """Soft punishment of overlong completions, -1..0.

    0 up to ``max_tokens - cache_tokens``, then falling in a straight line to -1 at ``max_tokens``, and -1
    beyond.

    Args:
        max_tokens: Length at which -1 is reached, in tokens; by default ``--soft_max_length``, else
            ``--max_completion_length``.
        cache_tokens: Length of the slope in tokens; by default ``--soft_cache_length``, else a fifth of
            `max_tokens`.
    Gold: None needed; ``response_token_ids`` comes from ms-swift.
    Raises:
        Unscorable: No token ids, or no `max_tokens` (outside of a training run).
    Rises with: Shortness, within the slope.
    Gaming:
        - Endless text: clamped to -1, so that it cannot outweigh everything else (test_overlong_is_clamped).
    Source: DAPO, equation 13 (arXiv 2503.14476).
    Example:
        >>> get_reward("ext_overlong")("...", {"response_token_ids": [0] * 90}, max_tokens=100)
        -0.5
    """
    length = completion_tokens(completion, columns)
    if max_tokens is None:
        raise Unscorable("parameter max_tokens is not set")
    slope = min(cache_tokens or max(1, max_tokens // 5), max_tokens)
    score = max(-1.0, min(0.0, (max_tokens - slope - length) / slope))
    return Outcome(score, f"punished from {max_tokens - slope} tokens on", read=f"{length} tokens")


@reward(
    low=-1.0,
    high=1.0,
    reads=(TOKENS_COLUMN, "accuracy", "solution", "answers", "answer", "options", "choices", "messages"),
    cost="process",
    host_defaults={
        "max_tokens": ("cosine_max_len", "max_completion_length"),
        "wrong_short": ("cosine_min_len_value_wrong",),
        "wrong_long": ("cosine_max_len_value_wrong",),
        "right_short": ("cosine_min_len_value_correct",),
        "right_long": ("cosine_max_len_value_correct",),
    },
)
def cosine(
    completion: str,
    columns: Columns,
    *,
    max_tokens: Annotated[int | None, Field(ge=1)] = None,
    wrong_short: Value = -0.5,
    wrong_long: Value = 0.0,
    right_short: Value = 1.0,
    right_long: Value = 0.5,
    accuracy_reward: str = "ext_math",
) -> Outcome:
    """Accuracy shaped by length along half a cosine, -1..1: short right ones most, short wrong ones least.

    The value moves from its ``short`` to its ``long`` end as the length goes from 0 to `max_tokens`, and
    stays there beyond.

    Args:
        max_tokens: Length at which the ``long`` values are reached, in tokens; by default
            ``--cosine_max_len``, else ``--max_completion_length``.
        wrong_short: Score of a wrong completion of 0 tokens.
        wrong_long: Score of a wrong completion of `max_tokens`.
        right_short: Score of a right completion of 0 tokens.
        right_long: Score of a right completion of `max_tokens`.
        accuracy_reward: The reward of the catalogue that says what is right, by its default parameters.
    Gold: That of `accuracy_reward`; or ``accuracy`` in its place, 1 for right. ``response_token_ids`` comes
        from ms-swift.
    Raises:
        Unscorable: No token ids, no `max_tokens`, or no accuracy for the row.
    Rises with: Being right; then shortness if right, length if wrong.
    Gaming:
        - Writing on beyond the maximum until the cosine comes back up: clamped
          (test_cosine_is_clamped_beyond_the_maximum).
        - Length alone: a wrong completion never reaches the value of a right one while ``wrong_long`` is
          below ``right_long`` (test_no_wrong_completion_earns_more_than_a_right_one).
    Source: Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373).
    Example:
        >>> row = {"response_token_ids": [0] * 50, "accuracy": 1.0}
        >>> get_reward("ext_cosine")("...", row, max_tokens=100)
        0.75
    """
    length = completion_tokens(completion, columns)
    accuracy = columns.get("accuracy")
    if accuracy is None:
        accuracy = get_reward(accuracy_reward)(completion, columns)
    if max_tokens is None or not isinstance(accuracy, (int, float)) or accuracy != accuracy:
        raise Unscorable("parameter max_tokens is not set" if max_tokens is None else "accuracy is unknown")
    short, long = (right_short, right_long) if accuracy >= 1 else (wrong_short, wrong_long)
    share = min(1.0, length / max_tokens)
    score = long + (short - long) * (1 + math.cos(math.pi * share)) / 2
    return Outcome(score, "right" if accuracy >= 1 else "wrong", read=f"{length} of {max_tokens} tokens")
