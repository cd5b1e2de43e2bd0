"""Free text against a reference, by the tokens that both hold."""

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_strings
from swift_grpo_ext.rewards.place import answer_of
from swift_grpo_ext.rewards.values.text import token_f1, tokenise

_ANSWERS = ("solution", "answers", "answer")


def _references(columns: Columns) -> list[str]:
    references = gold_strings(columns, _ANSWERS)
    references = [text for text in references if tokenise(text)] or references[:1]
    if not tokenise(references[0]):
        raise Unscorable(f"gold {references[0]!r:.80} holds no words")
    return references


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _references(row)[0])
def text_f1(completion: str, columns: Columns) -> Outcome:
    """F1 of the answer's tokens against those of the reference, 0..1, order does not matter.

    Tokens are words without punctuation and case; in scripts without spaces every character is one. With
    several references the best counts.

    Gold: ``solution`` (or ``answers``, ``answer``): the reference, or a list of them.
    Raises:
        Unscorable: No gold, or a reference without any word.
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
    references = _references(columns)
    answer = answer_of(completion, "long")
    return Outcome.of(max(token_f1(answer, text) for text in references), answer, " | ".join(references[:5]))


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _references(row)[0])
def rouge(completion: str, columns: Columns) -> Outcome:
    """ROUGE-L of the answer against the reference, 0..1: F1 of the longest common subsequence of tokens.

    Tokens as for `ext_text_f1`. With several references the best counts.

    Gold: ``solution`` (or ``answers``, ``answer``): the reference, or a list of them.
    Raises:
        Unscorable: No gold, or a reference without any word.
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

    references = _references(columns)
    answer = answer_of(completion, "long")
    tokens = tokenise(answer)
    pairs = [(tokens, tokenise(text)) for text in references]
    best = max(2 * LCSseq.similarity(*pair) / (sum(map(len, pair)) or 1) for pair in pairs)
    return Outcome.of(best, answer, " | ".join(references[:5]))
