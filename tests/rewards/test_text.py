"""Tokens of a text, and the F1 of two texts by their tokens."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.values.text import token_f1, tokenise

ascii_text = st.text(alphabet="ab cd,.-'0\n", max_size=40)


@given(ascii_text, ascii_text)
def test_token_f1_is_the_formula(read, gold):
    if tokenise(gold) and tokenise(read):
        ours, theirs = Counter(tokenise(read)), Counter(tokenise(gold))
        shared = sum((ours & theirs).values())
        precision, recall = shared / sum(ours.values()), shared / sum(theirs.values())
        expected = 2 * precision * recall / (precision + recall) if shared else 0.0
        assert token_f1(read, gold) == pytest.approx(expected)


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


def test_repeated_words_do_not_pay():
    assert token_f1("car car car car", "car") == pytest.approx(0.4)


@pytest.mark.parametrize("text", ["हिन्दी की किताब", "বাংলা ভাষা", "தமிழ் மொழி", "كَتَبَ"])
def test_vowel_signs_belong_to_their_word(text):
    assert tokenise(text) == text.split()
