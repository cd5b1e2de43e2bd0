"""Text read from an image or written freely, against a reference: by its characters, words or tokens."""

import re
import unicodedata
from collections import Counter
from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.answer import readings
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_string, gold_strings
from swift_grpo_ext.rewards.statement import fold_width

_ANSWERS = ("solution", "answers", "answer")
_TEXT = ("solution", "text", "answer")


def normalise_text(text: str, ignore_case: bool) -> str:
    """Canonical Unicode (NFC) of one width, every run of white space one space, outer white space gone."""
    plain = " ".join(unicodedata.normalize("NFC", fold_width(text)).split())
    return plain.casefold() if ignore_case else plain


def _read(completion: str, ignore_case: bool, gold: str) -> list[str]:
    """What the model read, with and without what wraps it; at least one text, empty if there is no answer."""
    return [normalise_text(text, ignore_case) for text in readings(completion, gold)] or [""]


def edit_similarity(predicted: str, gold: str) -> float:
    """1 minus the Levenshtein distance over the length of the longer text, 0..1; 1 for two empty texts."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.normalized_similarity(predicted, gold)


@reward(gold=_TEXT, gold_text=lambda row, **_: gold_string(row, _TEXT))
def ocr(completion: str, columns: Columns, *, ignore_case: bool = False) -> float:
    """Character accuracy of text read from an image: 1 minus the normalised edit distance, 0..1.

    Runs of white space count as one space, and Unicode is brought to its canonical form, on both sides.

    Args:
        ignore_case: Do not tell upper from lower case.
    Gold: ``solution`` (or ``text``, ``answer``): the text.
    None: No gold, an empty one, or one longer than 32,768 characters.
    Rises with: Fewer edits from the answer to the gold.
    Gaming:
        - A long answer that holds the text somewhere: each surplus character is an edit
          (test_surplus_text_lowers_the_score).
        - Text in the thinking part: not read (test_text_in_the_thinking_part_is_not_read).
    Source: Normalised edit distance, as in OmniDocBench (arXiv 2412.07626).
    Example:
        >>> get_reward("ext_ocr")("TOTAL 12.4", {"solution": "TOTAL 12.5"})
        0.9
    """
    gold = normalise_text(gold_string(columns, _TEXT), ignore_case)
    return max(edit_similarity(text, gold) for text in _read(completion, ignore_case, gold))


@reward(gold=_TEXT, gold_text=lambda row, **_: gold_string(row, _TEXT))
def wer(completion: str, columns: Columns, *, ignore_case: bool = False) -> float:
    """Word accuracy of text read from an image: 1 minus the word error rate, 0..1.

    The word error rate is the edit distance in words over the number of gold words, cut off at 1. Words are
    what white space separates; use `ext_ocr` for scripts without spaces.

    Args:
        ignore_case: Do not tell upper from lower case.
    Gold: ``solution`` (or ``text``, ``answer``): the text.
    None: No gold, an empty one, or one longer than 32,768 characters.
    Rises with: Fewer word edits from the answer to the gold.
    Gaming:
        - A long answer that holds the text somewhere: each surplus word is an edit
          (test_surplus_text_lowers_the_score).
    Source: Word error rate.
    Example:
        >>> get_reward("ext_wer")("the quick fox", {"solution": "the quick brown fox"})
        0.75
    """
    from rapidfuzz.distance import Levenshtein

    gold = normalise_text(gold_string(columns, _TEXT), ignore_case)
    words = gold.split(" ")
    read = [text.split() for text in _read(completion, ignore_case, gold)]
    return max(0.0, 1.0 - min(Levenshtein.distance(text, words) for text in read) / len(words))


def _gold_answers(columns: Columns) -> list[str]:
    gold = gold_strings(columns, _ANSWERS)
    if not (answers := [text for one in gold if (text := normalise_text(one, True))]):
        raise Unscorable(f"gold {gold!r:.80} holds no answer")
    return answers


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _gold_answers(row)[0])
def anls(completion: str, columns: Columns, *, threshold: Annotated[float, Field(ge=0, lt=1)] = 0.5) -> float:
    """Normalised Levenshtein similarity to the nearest of several answers, 0..1, and 0 below a threshold.

    Case does not matter.

    Args:
        threshold: Distances from here on count 0, as a fraction of the longer text. DocVQA's is .5.
    Gold: ``solution`` (or ``answers``, ``answer``): one answer, or a list of right answers.
    None: No gold, or only empty answers.
    Rises with: Similarity to the nearest right answer, above the threshold.
    Gaming:
        - A long answer that holds the right one: each surplus character is an edit
          (test_surplus_text_lowers_the_score).
    Source: ANLS of DocVQA / ST-VQA (arXiv 1907.00490): with NL the normalised distance, 1 - NL if NL <
        threshold.
    Example:
        >>> get_reward("ext_anls")("2O24-03-01", {"solution": ["2024-03-01", "1 March 2024"]})
        0.9
    """
    gold = _gold_answers(columns)
    best = max(edit_similarity(read, text) for text in gold for read in _read(completion, True, text))
    return best if 1.0 - best < threshold else 0.0


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


def tokenise(text: str) -> list[str]:
    """Tokens without punctuation, width- and case-folded; one per character of an unspaced script."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def token_f1(predicted: str, gold: str) -> float:
    """F1 of two bags of tokens, 0..1; texts without any token are compared as they are."""
    ours, theirs = Counter(tokenise(predicted)), Counter(tokenise(gold))
    if not ours or not theirs:
        return float(predicted.strip() == gold.strip())
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total())


def _references(columns: Columns) -> list[str]:
    references = gold_strings(columns, _ANSWERS)
    references = [text for text in references if tokenise(text)] or references[:1]
    if not tokenise(references[0]):
        raise Unscorable(f"gold {references[0]!r:.80} holds no words")
    return references


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _references(row)[0])
def text_f1(completion: str, columns: Columns) -> float:
    """F1 of the answer's tokens against those of the reference, 0..1, order does not matter.

    Tokens are words without punctuation and case; in scripts without spaces every character is one. With
    several references the best counts.

    Gold: ``solution`` (or ``answers``, ``answer``): the reference, or a list of them.
    None: No gold, or a reference without any word.
    Rises with: Shared tokens; falls with surplus ones.
    Gaming:
        - A list of likely words: surplus tokens lower precision (test_surplus_text_lowers_the_score).
        - The right word many times: each occurrence counts once per occurrence in the reference
          (test_repeated_words_do_not_pay).
    Source: Token F1 of SQuAD (arXiv 1606.05250), without its removal of English articles.
    Example:
        >>> get_reward("ext_text_f1")("a red car", {"solution": "a car"})
        0.8
    """
    answers, references = readings(completion), _references(columns)
    return max((token_f1(answer, text) for answer in answers for text in references), default=0.0)


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _references(row)[0])
def rouge(completion: str, columns: Columns) -> float:
    """ROUGE-L of the answer against the reference, 0..1: F1 of the longest common subsequence of tokens.

    Tokens as for `ext_text_f1`. With several references the best counts.

    Gold: ``solution`` (or ``answers``, ``answer``): the reference, or a list of them.
    None: No gold, or a reference without any word.
    Rises with: Shared tokens in the same order; falls with surplus ones.
    Gaming:
        - Copying words in any order: only a common subsequence counts (test_order_matters_for_rouge).
        - A long answer: surplus tokens lower precision (test_surplus_text_lowers_the_score).
    Source: Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004.
    Example:
        >>> get_reward("ext_rouge")("a red car", {"solution": "a car"})
        0.8
    """
    from rapidfuzz.distance import LCSseq

    references = [tokenise(text) for text in _references(columns)]
    pairs = [(one, other) for one in map(tokenise, readings(completion)) for other in references if one]
    return max((2 * LCSseq.similarity(*pair) / sum(map(len, pair)) for pair in pairs), default=0.0)
