import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.rewards.repetition import repetition


def naive_repetition(words, n):
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return -(1 - len(set(grams)) / len(grams)) if grams else 0.0


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4))
def test_repetition_is_the_share_of_repeated_ngrams(words, n):
    assert repetition(" ".join(words), {}, ngram=n) == pytest.approx(naive_repetition(words, n))
    assert repetition(
        "".join({"a": "一", "b": "二", "c": "三"}[w] for w in words), {}, ngram=n
    ) == pytest.approx(naive_repetition(words, n))


def test_chinese_repeats():
    assert repetition("我们看到一只猫。" * 20, {}) < -0.9
    assert repetition("我们看到一只猫", {}) == 0.0


def test_short_text_has_nothing_to_repeat():
    assert repetition("yes yes", {}) == 0.0
    assert repetition("", {}) == 0.0
    assert repetition("yes yes yes yes", {}) == -0.5
