"""Text read from an image or written freely, against a reference: by its characters, words or tokens."""

from swift_grpo_ext.rewards.contract import Columns, Outcome, Unscorable, reward
from swift_grpo_ext.rewards.gold.columns import gold_strings
from swift_grpo_ext.rewards.place import answer_of, bare_gold, gold_string
from swift_grpo_ext.rewards.values.text import edit_similarity, normalise

_ANSWERS = ("solution", "answers", "answer")
_TEXT = ("solution", "text", "answer")
THRESHOLD = 0.5  # distances from here on count 0, as a fraction of the longer text


@reward(gold=_TEXT, gold_text=lambda row, **_: gold_string(row, _TEXT))
def ocr(completion: str, columns: Columns, *, ignore_case: bool = False) -> Outcome:
    """Character accuracy of text read from an image: 1 minus the normalised edit distance, 0..1.

    Runs of white space count as one space, and Unicode is brought to its canonical form, on both sides.

    Args:
        ignore_case: Do not tell upper from lower case.
    Gold: ``solution`` (or ``text``, ``answer``): the text.
    Raises:
        Unscorable: No gold, an empty one, or one longer than 32,768 characters.
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
    gold = normalise(gold_string(columns, _TEXT), ignore_case)
    text = normalise(answer_of(completion, "long"), ignore_case)
    return Outcome.of(edit_similarity(text, gold), text, gold)


@reward(gold=_TEXT, gold_text=lambda row, **_: gold_string(row, _TEXT))
def wer(completion: str, columns: Columns, *, ignore_case: bool = False) -> Outcome:
    """Word accuracy of text read from an image: 1 minus the word error rate, 0..1.

    The word error rate is the edit distance in words over the number of gold words, cut off at 1. Words are
    what white space separates; use `ext_ocr` for scripts without spaces.

    Args:
        ignore_case: Do not tell upper from lower case.
    Gold: ``solution`` (or ``text``, ``answer``): the text.
    Raises:
        Unscorable: No gold, an empty one, or one longer than 32,768 characters.
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

    gold = normalise(gold_string(columns, _TEXT), ignore_case)
    words = gold.split(" ")
    text = normalise(answer_of(completion, "long"), ignore_case)
    return Outcome.of(max(0.0, 1.0 - Levenshtein.distance(text.split(" "), words) / len(words)), text, gold)


def _gold_answers(columns: Columns) -> list[str]:
    gold = gold_strings(columns, _ANSWERS)
    answers = [text for answer in gold if (text := normalise(bare_gold(answer), ignore_case=True))]
    if not answers:
        raise Unscorable(f"gold {gold!r:.80} holds no answer")
    return answers


@reward(gold=_ANSWERS, gold_text=lambda row, **_: _gold_answers(row)[0])
def anls(completion: str, columns: Columns) -> Outcome:
    """Normalised Levenshtein similarity to the nearest of several answers, 0..1; 0 up to a half.

    Case does not matter.

    Gold: ``solution`` (or ``answers``, ``answer``): one answer, or a list of right answers.
    Raises:
        Unscorable: No gold, or only empty answers.
    Rises with: Similarity to the nearest right answer, above the threshold.
    Gaming:
        - A long answer that holds the right one: each surplus character is an edit
          (test_surplus_text_lowers_the_score).
    Source: ANLS of DocVQA / ST-VQA (arXiv 1907.00490): with NL the normalised distance, 1 - NL if NL <
        0.5.
    Example:
        >>> get_reward("ext_anls")("2O24-03-01", {"solution": ["2024-03-01", "1 March 2024"]})
        0.9
    """
    gold = _gold_answers(columns)
    text = normalise(answer_of(completion), ignore_case=True)
    best = max(edit_similarity(text, each) for each in gold)
    return Outcome.of(best if 1.0 - best < THRESHOLD else 0.0, text, " | ".join(gold[:5]))
