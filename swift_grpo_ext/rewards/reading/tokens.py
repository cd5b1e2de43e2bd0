"""Words and characters of a text, for comparing it with a reference."""

import re
import unicodedata
from collections import Counter

from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.statement import fold_width
from swift_grpo_ext.rewards.reading.words import QUANTITIES


def normalise_text(text: str, ignore_case: bool) -> str:
    """Canonical Unicode (NFC) of one width, every run of white space one space, outer white space gone."""
    plain = " ".join(unicodedata.normalize("NFC", fold_width(text)).split())
    return plain.casefold() if ignore_case else plain


def edit_similarity(predicted: str, gold: str) -> float:
    """1 minus the Levenshtein distance over the length of the longer text, 0..1; 1 for two empty texts."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(predicted, gold)


# Scripts written without spaces: Han, kana, and the scripts of mainland South-East Asia.
UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)


# Vowel signs and other marks, which belong to the word that they stand in (Devanagari, Tamil, Arabic).
_MARKS = "".join(
    mark for mark in map(chr, range(0x300, 0x1B00)) if unicodedata.category(mark) in ("Mn", "Mc")
)


# "word"
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}](?:[^\W_{UNSPACED}]|(?![{UNSPACED}])[{_MARKS}])*")


# "word"
_ASCII_TOKEN = re.compile(
    r"[A-Za-z0-9]+"
)  # the same for a text without other letters, in a third of the time


def tokenise(text: str) -> list[str]:
    """Tokens without punctuation, width- and case-folded; one per character of an unspaced script."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def token_f1(predicted: str, gold: str) -> float:
    """F1 of two bags of tokens, 0..1; texts without any token are compared as they are."""
    of_answer = Counter(tokenise(predicted))
    of_gold = Counter(tokenise(gold))
    if not of_answer or not of_gold:
        return float(predicted.strip() == gold.strip())
    shared = (of_answer & of_gold).total()
    return 2 * shared / (of_answer.total() + of_gold.total())


_SAME = by_word(QUANTITIES.translations)
_NAMELESS = frozenset(QUANTITIES.nameless.split())
# "2019"
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d")
# "dogs"
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|e?s)\Z")


def named_by(text: str) -> frozenset[str]:
    """What a text names: its words without their endings, Chinese by the character, and years."""
    tokens = (token for token in tokenise(text) if not token.isdecimal() or _YEAR.fullmatch(token))
    words = (word for word in tokens if word not in QUANTITIES.classifiers)
    return frozenset(_SAME.get(word) or _ENDING.sub("", word) for word in words if word not in _NAMELESS)
