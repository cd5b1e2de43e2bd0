import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.ocr import anls, ocr, wer
from swift_grpo_ext.rewards.values.text import edit_similarity

short = st.text(alphabet="abcé字 \n", max_size=12)
words = st.lists(st.sampled_from(["the", "cat", "sat", "on", "mat", "a"]), min_size=1, max_size=10).map(
    " ".join
)


def distance(a, b):
    """Levenshtein's recurrence, written out."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row, last = [i], row
        for j, y in enumerate(b, start=1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y)))
    return row[-1]


@given(short, short)
def test_edit_similarity_is_the_recurrence(a, b):
    expected = 1 - distance(a, b) / max(len(a), len(b)) if a or b else 1.0
    assert edit_similarity(a, b) == pytest.approx(expected)


@given(short, short.filter(str.strip))
def test_character_accuracy(read, gold):
    a, b = " ".join(read.split()), " ".join(gold.split())
    expected = 1 - distance(a, b) / max(len(a), len(b))
    assert ocr(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(expected)


@given(
    st.text(alphabet="abc ", max_size=30), st.text(alphabet="abc ", min_size=1, max_size=30).filter(str.strip)
)
def test_character_errors_are_jiwers(read, gold):
    a, b = " ".join(read.split()), " ".join(gold.split())
    if a:
        errors = jiwer.cer(b, a) * len(b)
        assert (1 - edit_similarity(a, b)) * max(len(a), len(b)) == pytest.approx(errors)


@given(words, words)
def test_word_accuracy_is_jiwers(read, gold):
    expected = max(0.0, 1 - jiwer.wer(gold, read))
    assert wer(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(expected)


@given(short, st.lists(short.filter(str.strip), min_size=1, max_size=3))
def test_anls_is_its_formula(read, golds):
    plain = [" ".join(text.split()).casefold() for text in (read, *golds)]
    distances = [distance(plain[0], gold) / max(len(plain[0]), len(gold)) for gold in plain[1:]]
    expected = max(1 - nl if nl < 0.5 else 0.0 for nl in distances)
    assert anls(f"<answer>{read}</answer>", {"answers": golds}) == pytest.approx(expected)


@pytest.mark.parametrize("reward", [ocr, wer, anls])
def test_surplus_text_lowers_the_score(reward):
    gold = "the cat sat on the mat"
    scores = [reward(f"<answer>{gold}{' and more text' * n}</answer>", {"solution": gold}) for n in range(6)]
    assert scores[0] == 1.0
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.3


def test_text_in_the_thinking_part_is_not_read():
    assert ocr("<think>HELLO</think><answer>x</answer>", {"solution": "HELLO"}) == 0.0


def test_white_space_unicode_forms_fences_and_case():
    row = {"solution": "caf\u00e9  au\nlait"}
    assert ocr("<answer>cafe\u0301 au lait</answer>", row) == 1.0
    assert ocr("<answer>```text\ncaf\u00e9 au lait\n```</answer>", row) == 1.0
    assert ocr("<answer>CAF\u00c9 AU LAIT</answer>", row) < 0.5
    assert ocr("<answer>CAF\u00c9 AU LAIT</answer>", row, ignore_case=True) == 1.0
    assert anls("<answer>CAF\u00c9 AU LAIT</answer>", row) == 1.0


def test_anls_threshold():
    assert anls("<answer>abcx</answer>", {"solution": ["abcd", "zzz"]}) == 0.75
    assert anls("<answer>axxx</answer>", {"solution": "abcd"}) == 0.0
    assert anls("<answer>abxx</answer>", {"solution": "abcd"}) == 0.0
