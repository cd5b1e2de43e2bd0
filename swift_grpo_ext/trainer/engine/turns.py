"""Where the trainer's row holds what an engine sampled, turn by turn, and what to call such a place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from swift_grpo_ext.trainer.samples import Claim

PLACES = 64
"""Tokens of a completion that are looked at, spread over its turns: of each turn the first one at least."""
EARLY = 8  # tokens of a completion that count as its beginning


@dataclass(frozen=True)
class Place:
    """A sampled token that is compared."""

    turn: int  # counted from 1
    number: int  # in the turn, from 0
    at: int  # in the trainer's row
    logp: float  # what the engine said, in nats


def places(
    claims: Sequence[Claim], ids: Sequence[int], trained: Sequence[bool], placeholders: Collection[int]
) -> list[Place]:
    """The tokens of a row (``ids``, and which of them are trained on) that are compared with the engine's.

    Of a turn those from its begin to the first one that is another token in the row: a scheduler may cut or
    rewrite what was sampled. A turn whose prompt is not in the row is left out, see `rewritten`.
    """
    compared = []
    most = max(1, PLACES // max(1, len(claims)))
    starts = _starts(claims, ids, trained, placeholders)
    for turn, (claim, start) in enumerate(zip(claims, starts, strict=True), 1):
        if start is None:
            continue
        pairs = zip(claim.tokens, ids[start:], strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        numbers = _spread(min(same, len(claim.logps)), most)
        compared += [Place(turn, number, start + number, claim.logps[number]) for number in numbers]
    return compared


def _starts(
    claims: Sequence[Claim], ids: Sequence[int], trained: Sequence[bool], placeholders: Collection[int]
) -> list[int | None]:
    """Where each turn's sampled tokens begin in a row; None where that is not known, or after other words."""
    text = [place for place, token in enumerate(ids) if token not in placeholders]
    words = [ids[place] for place in text]
    sampled = [place for place, is_trained in enumerate(trained) if is_trained]
    tokens = [token for claim in claims for token in claim.tokens]
    in_order = len(claims) == 1 or tokens == [ids[place] for place in sampled]
    # Where each has a message of its own; what ends a turn that was cut off is trained on behind it.
    messages = [place for place in sampled if not trained[place - 1]]
    starts: list[int | None] = []
    before = 0  # tokens of the turns before
    for number, claim in enumerate(claims):
        seen = [token for token in claim.prompt if token not in placeholders]
        if seen:
            starts.append(text[len(seen) - 1] + 1 if words[: len(seen)] == seen else None)
        elif len(messages) == len(claims):
            starts.append(messages[number])
        else:
            starts.append(sampled[before] if in_order and before < len(sampled) else None)
        before += len(claim.tokens)
    return starts


def _spread(count: int, most: int) -> list[int]:
    """Numbers below a count, at most so many: the first ones, and others evenly spread over the rest."""
    if count <= most:
        return list(range(count))
    early = min(EARLY, most)
    rest = most - early
    return [*range(early), *(early + (count - 1 - early) * k // max(1, rest - 1) for k in range(rest))]


def longest_prompt(claims: Sequence[Claim]) -> Sequence[int]:
    """The prompt that holds the most turns as they were sampled: an empty one is filled later."""
    whole = len(list(takewhile(lambda claim: claim.tokens, claims)))
    return claims[min(whole, len(claims) - 1)].prompt


def rewritten(claims: Sequence[Claim]) -> list[int]:
    """The turns (from 1) whose prompt the last prompt does not begin with: a scheduler changed it."""
    last = longest_prompt(claims)
    before = takewhile(lambda pair: pair[1].prompt is not last, enumerate(claims, 1))
    return [turn for turn, claim in before if list(last[: len(claim.prompt)]) != list(claim.prompt)]


def turn_at(place: int, claims: Sequence[Claim]) -> tuple[int, bool]:
    """The turn (from 1) of a place in the engine's last prompt, and whether it was sampled in it."""
    turn = sum(len(claim.prompt) + len(claim.tokens) <= place for claim in claims[:-1])
    return turn + 1, place >= len(claims[turn].prompt)


def name_of(
    turn: int, is_sampled: bool, claims: Sequence[Claim], messages: Sequence[Mapping[str, object]]
) -> str:
    """A turn's prompt or what was sampled in it: ``turn 2 (message 3, tool)``; empty with one turn."""
    if len(claims) < 2:
        return ""
    spoken = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    if len(spoken) < len(claims):  # several turns went on with one message
        return f"turn {turn}"
    spoken = [-1, *spoken[-len(claims) :]]
    end = spoken[turn] if is_sampled else spoken[turn] - 1
    begin = end if is_sampled else spoken[turn - 1] + 1
    numbers = f"message {begin}" if begin == end else f"messages {begin} to {end}"
    return f"turn {turn} ({numbers}, {messages[end]['role']})"
