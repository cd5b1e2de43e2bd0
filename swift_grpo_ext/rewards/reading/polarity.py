"""Whether a text says yes or no."""

import re

from swift_grpo_ext.rewards.reading.answer import short_answer
from swift_grpo_ext.rewards.reading.assertion import refuses, stated
from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.statement import Statement, labels, last_statement
from swift_grpo_ext.rewards.reading.tokens import named_by
from swift_grpo_ext.rewards.reading.words import POLARITY, STATEMENTS

_POLARITY = {word: meaning == "yes" for word, meaning in by_word(POLARITY.words).items()}


_ALONE = {"y": True, "n": False, "1": True, "0": False}


_ANY = "|".join(map(re.escape, sorted(_POLARITY, key=len, reverse=True)))


# "yes"
_FIRST = re.compile(rf"({_ANY})(?![^\W_]|-\w)")


# "so, no."
_ASIDE = re.compile(
    rf"(?:^|[,，.。:;!—–\n]|\b(?:so|thus|therefore|hence|then|actually|(?<!anything )but)\b|所以|因此|故"
    rf"|综上)[\s*_,，:]{{0,4}}({_ANY})[\s*_]{{0,4}}"
    r"(?=[,，.。:;!—–\n]|\Z)"
)


# "- ": before the first word, as in "1. yes", "#### yes"
_MARKS = re.compile(r"(?:[^\w.?!\d]{1,16}|\d{1,2}[.)]\s){0,4}")
# "so": as in "i think so", "i think not"
_OPPOSED = re.compile(r"(?:not|(so))\W{0,4}\Z")  # "i think not", "i think so"
# "no, i cannot see it": the word stands by itself
_COMMA = re.compile(r"\W*no(?:pe)?\W*[,.;:\n]")
# " that there is no dog": what is said to be true or false
_THAT = re.compile(r"\s?that ([^.!?\n]{4,120})")


def leading_polarity(text: str) -> list[bool | None]:
    """The polarity of the first word, if it has one; None if the opposite follows at once ("yes or no")."""
    text = _MARKS.sub("", text, count=1)
    if opinion := POLARITY.opinion.match(text):
        text = text[opinion.end() :]
        if short := _OPPOSED.match(text):
            return [short[1] is not None]
    word = _FIRST.match(text)
    if word is None or POLARITY.no_thing.match(text):
        return []
    polarity = _POLARITY[word[1]]
    second = _FIRST.match(POLARITY.joint.sub("", text[word.end() :], count=1))
    return [None if second and _POLARITY[second[1]] is not polarity else polarity]


def stated_polarity(completion: str, topic: frozenset[str] = frozenset()) -> bool | None:
    """The polarity that a completion states; None if it states none, asks, refuses, or contradicts itself.

    A plain statement of something else than what is asked (its words) is no yes.
    """
    answer = (short_answer(completion) or "").casefold().strip()
    return stated(
        answer,
        lambda text: _polarity(POLARITY.lead.sub("", POLARITY.conceded.sub("", text)).strip(), topic),
        refusals=True,
    )


def _polarity(plain: str, topic: frozenset[str]) -> bool | None:
    """The polarity that a text without concessions states."""
    if plain.strip(" .") in _ALONE:
        return _ALONE[plain.strip(" .")]
    refused = refuses(plain)
    leading = leading_polarity(plain)
    if (
        POLARITY.neither.match(plain)
        or POLARITY.not_sure.search(plain)
        or POLARITY.denied.search(plain)
        or (not leading and POLARITY.both.search(plain))
    ):
        return None
    if refused and not (_COMMA.match(plain) if leading == [False] else leading or labels(plain)):
        return None
    if _contradicts_itself(plain, topic):
        return None
    if statements := _statements(plain, leading, topic):
        return last_statement(statements, plain, None)
    if refused or STATEMENTS.unsure.search(plain):
        return None
    conclusions = [plain[start.end() :] for start in POLARITY.concluding.finditer(plain)]
    described = (_described(text, topic) for text in (plain, *conclusions[-1:]))
    return next((polarity for polarity in described if polarity is not None), None)


def _contradicts_itself(plain: str, topic: frozenset[str]) -> bool:
    """Whether a yes or no is followed by a sentence of the question's own words that says the opposite."""
    said = POLARITY.said.match(plain)
    if not said or topic & named_by("true correct statement claim"):
        return False
    names = named_by(said[3])
    covers = names and names <= topic and (said[1] or len(topic - names) <= 1)
    return _described(said[3], topic) is (said[1] is None) if covers else False


def _statements(
    plain: str, leading: list[bool | None], topic: frozenset[str]
) -> list[Statement[bool | None]]:
    """What a text says first, announces, says of a claim, and at its end; else its words by themselves."""
    statements: list[Statement[bool | None]] = [(0, 1, polarity) for polarity in leading]
    for label in labels(plain):
        words = POLARITY.skipped.sub("", plain[label.end() :][:160], count=1)
        statements += [(*label.span(), polarity) for polarity in leading_polarity(words[:80])]
    for judged in POLARITY.judged.finditer(plain):
        holds: bool | None = bool(judged[3] or judged[4]) is not bool(judged[2])
        behind = _THAT.match(plain, judged.end())
        if claim := behind[1] if behind else judged["claimed"]:
            of_claim = _described(claim, topic)
            holds = of_claim if holds or of_claim is None else not of_claim
        statements.append((*judged.span(), holds))
    asides: list[Statement[bool | None]] = [
        (*aside.span(), _POLARITY[aside[1]]) for aside in _ASIDE.finditer(plain)
    ]
    closing = [aside for aside in asides if not plain[aside[1] :].strip(" .!*。！")]
    return (statements + closing) or asides


def _described(plain: str, topic: frozenset[str]) -> bool | None:
    """What a text without yes or no says: that there is something, or that something is not so."""
    names = named_by(plain)
    if contrast := POLARITY.contrast.search(plain):
        denied = named_by(contrast[1])
        if denied and denied <= topic and named_by(plain[: contrast.start()]) - topic:
            return False  # it shows a decrease rather than the increase that was asked for
    another = plain.isascii() and names - topic and topic - names  # the light is red, and not green
    plain, doubled = POLARITY.double.subn(" ", plain)
    polarities = {not any(match.groups()) for match in POLARITY.exists.finditer(plain)}
    if doubled:
        polarities.add(True)
    if not polarities:
        negated = POLARITY.negated.search(plain)
        if negated or POLARITY.plain.fullmatch(POLARITY.explained.sub("", plain)):
            polarities = {negated is None}
    if polarities == {True} and another:
        return None
    return polarities.pop() if len(polarities) == 1 else None
