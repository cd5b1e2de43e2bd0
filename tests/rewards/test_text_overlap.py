from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from swift_grpo_ext.rewards.text_overlap import rouge, text_f1
from swift_grpo_ext.rewards.values.text import tokenise

ascii_text = st.text(alphabet="ab cd,.-'0\n", max_size=40)
SCORER = RougeScorer(["rougeL"], use_stemmer=False)


@given(ascii_text, ascii_text)
def test_rouge_l_is_google_researchs(read, gold):
    if tokenise(gold):
        expected = SCORER.score(gold, read)["rougeL"].fmeasure
        assert rouge(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(expected)


@given(ascii_text, ascii_text)
def test_token_f1_is_the_formula(read, gold):
    if tokenise(gold):
        ours, theirs = Counter(tokenise(read)), Counter(tokenise(gold))
        shared = sum((ours & theirs).values())
        precision, recall = shared / max(1, sum(ours.values())), shared / sum(theirs.values())
        expected = 2 * precision * recall / (precision + recall) if shared else 0.0
        assert text_f1(f"<answer>{read}</answer>", {"solution": gold}) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello, World_2!", ["hello", "world", "2"]),
        ("图中有2只猫。", ["图", "中", "有", "2", "只", "猫"]),
        ("ＡＢＣ ｱ", ["abc", "ア"]),
        ("こんにちは world", [*"こんにちは", "world"]),
        ("안녕 세계", ["안녕", "세계"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("!?…", []),
    ],
)
def test_tokens(text, tokens):
    assert tokenise(text) == tokens


@pytest.mark.parametrize("reward", [text_f1, rouge])
def test_surplus_text_lowers_the_score(reward):
    gold = {"solution": "a red car next to a tree"}
    scores = [reward(f"<answer>a red car next to a tree {'and a dog ' * n}</answer>", gold) for n in range(5)]
    assert scores[0] == 1.0
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.65


def test_repeated_words_do_not_pay():
    assert text_f1("<answer>car car car car</answer>", {"solution": "car"}) == pytest.approx(0.4)


def test_order_matters_for_rouge():
    row = {"solution": "one two three four"}
    assert rouge("<answer>four three two one</answer>", row) == pytest.approx(0.25)
    assert text_f1("<answer>four three two one</answer>", row) == 1.0


def test_the_best_reference_counts():
    assert text_f1("<answer>a dog</answer>", {"answers": ["a cat", "a dog"]}) == 1.0
    assert rouge("<answer>一只狗</answer>", {"answers": ["一只猫", "一只狗"]}) == 1.0


def test_gold_without_words():
    assert text_f1.outcome("x", {"solution": "..."}).reason == "gold '...' holds no words"


@pytest.mark.parametrize("text", ["हिन्दी की किताब", "বাংলা ভাষা", "தமிழ் மொழி", "كَتَبَ"])
def test_vowel_signs_belong_to_their_word(text):
    assert tokenise(text) == text.split()
