"""Free text against a reference, by its tokens."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from swift_grpo_ext.rewards.answer import readings
from swift_grpo_ext.rewards.contract import Columns, Unscorable, reward
from swift_grpo_ext.rewards.gold import gold_strings

GOLD = ("solution", "answers", "answer")

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
    references = gold_strings(columns, GOLD)
    references = [text for text in references if tokenise(text)] or references[:1]
    if not tokenise(references[0]):
        raise Unscorable(f"gold {references[0]!r:.80} holds no words")
    return references


@reward(gold=GOLD, gold_text=lambda row, **_: _references(row)[0])
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
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_text_f1")("a red car", {"solution": "a car"})
        0.8
    """
    answers, references = readings(completion), _references(columns)
    return max((token_f1(answer, text) for answer in answers for text in references), default=0.0)


def rouge_l(predicted: list[str], reference: list[str]) -> float:
    """F1 of the longest common subsequence of two token lists, 0..1."""
    from rapidfuzz.distance import LCSseq

    if not predicted or not reference:
        return 0.0
    return 2 * LCSseq.similarity(predicted, reference) / (len(predicted) + len(reference))


@reward(gold=GOLD, gold_text=lambda row, **_: _references(row)[0])
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
        >>> from swift_grpo_ext import get_reward
        >>> get_reward("ext_rouge")("a red car", {"solution": "a car"})
        0.8
    """
    references = [tokenise(text) for text in _references(columns)]
    answers = [tokenise(text) for text in readings(completion)]
    return max((rouge_l(one, reference) for one in answers for reference in references), default=0.0)
