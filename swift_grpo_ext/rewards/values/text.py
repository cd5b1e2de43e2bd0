"""A text, as it stands, without the fence and the quotes around all of it.

>>> normalise("Caf\u00e9  No.\u00a01 "), tokenise("A red car, 第一"), round(token_f1("a red car", "a car"), 2)
('Café No. 1', ['a', 'red', 'car', '第', '一'], 0.8)
>>> plain("The Eiffel Tower!"), edit_similarity("2O24", "2024")
('eiffel tower', 0.75)
"""

import re
import string
import unicodedata
from collections import Counter

# Scripts written without spaces: Han, kana, and the scripts of mainland South-East Asia.
UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
# Vowel signs and other marks, which belong to the word that they stand in (Devanagari, Tamil, Arabic).
_MARKS = "".join(
    mark for mark in map(chr, range(0x300, 0x1B00)) if unicodedata.category(mark) in ("Mn", "Mc")
)
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}](?:[^\W_{UNSPACED}]|(?![{UNSPACED}])[{_MARKS}])*")
# The same for a text without other letters, in a third of the time.
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+")
_ARTICLES = re.compile(r"\b(?:an?|the)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "，。！？；：、“”‘’（）《》", " "))


def normalise(text: str, ignore_case: bool = False) -> str:
    """Canonical Unicode (NFC), every run of white space one space, outer white space gone."""
    joined = " ".join(text.split())
    composed = joined if joined.isascii() else unicodedata.normalize("NFC", joined)
    return composed.casefold() if ignore_case else composed


def plain(text: str) -> str:
    """A text without case, punctuation, articles and white space; as it is if nothing else is in it."""
    bare = normalise(text, ignore_case=True)
    return " ".join(_ARTICLES.sub(" ", bare.translate(_PUNCTUATION)).split()) or bare


def edit_similarity(predicted: str, gold: str) -> float:
    """1 minus the Levenshtein distance over the length of the longer text, 0..1; 1 for two empty texts."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(predicted, gold)


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
