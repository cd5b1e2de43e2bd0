"""The verdict on an engine, from figures alone."""

import math

import pytest
import torch

from swift_grpo_ext.trainer.engine_verdict import (
    FULL_PRECISION,
    HALF_PRECISION,
    Agreement,
    Distance,
    judge,
    prompt_difference,
)
from swift_grpo_ext.watch.records import NUMERICS, PROMPT, WEIGHTS

NAME = "vLLM server"


def apart(gap, tokens=32):
    return Distance.of(torch.full((tokens,), gap, dtype=torch.double))


def check(begin, rest, **more):
    return Agreement(apart(begin), apart(rest), **more)


def judged(now, agreed=None, limit=FULL_PRECISION, **options):
    return judge({(0, 1): now}, agreed, NAME, limit, **options)


def of_turns(*turns):
    """The verdict on one rank's turns."""
    return judge({(0, number): turn for number, turn in enumerate(turns)}, 0, NAME, FULL_PRECISION)


def test_distances_add_up():
    both = apart(0.5, 1) + apart(20.0, 1)
    assert (both.tokens, both.absolute, both.largest) == (2, 20.5, 20.0)
    assert both.mean_ratio == pytest.approx((math.exp(0.5) + math.exp(20)) / 2)
    assert Distance().mean_ratio == 1.0


@pytest.mark.parametrize(("limit", "gap"), [(FULL_PRECISION, 1e-3), (HALF_PRECISION, 0.03)])
def test_rounding_is_no_fault(limit, gap):
    record = judged(check(gap, gap), limit=limit)
    assert (record.rule, record.text) == ("", "")
    assert record.mean == pytest.approx(gap)


def test_weights_that_agreed_before_are_stale():
    found = judged(check(0.3, 0.3), agreed=0)
    assert found.rule == WEIGHTS
    assert "agreed at step 0, so the engine's weights are stale" in found.text


@pytest.mark.parametrize(
    ("prompts", "words"), [(2, "the prompts are equal and"), (0, "no prompts were compared")]
)
def test_weights_that_never_agreed_are_others(prompts, words):
    found = judged(check(0.3, 0.3, prompts=prompts))
    assert found.rule == WEIGHTS
    assert f"{words}" in found.text
    assert "another checkpoint" in found.text


def test_a_drift_is_numerics():
    found = judged(check(1e-4, 0.2))
    assert found.rule == NUMERICS
    assert "drift apart later" in found.text
    assert "--rollout_importance_sampling_mode token_truncate" in found.text


@pytest.mark.parametrize(("gap", "rule"), [(0.08, NUMERICS), (0.3, WEIGHTS)])
def test_a_little_more_than_usual_is_not_called_other_weights(gap, rule):
    assert judged(check(gap, gap), limit=HALF_PRECISION).rule == rule


def test_the_ranks_that_are_apart_are_named_and_judged_by_themselves():
    healthy, faulty, none = check(1e-5, 1e-5), check(0.3, 0.3), Agreement()
    found = judge({(0, 1): healthy, (1, 1): faulty, (2, 1): none}, None, NAME, FULL_PRECISION)
    assert "vLLM server of rank 1 and trainer disagree" in found.text
    assert found.mean == pytest.approx(0.3)
    both = judge({(0, 1): faulty, (1, 1): faulty, (2, 1): none}, None, NAME, FULL_PRECISION)
    assert "vLLM server and trainer disagree" in both.text


def test_of_rollouts_one_step_behind_prompts_alone_are_judged():
    assert judged(check(0.3, 0.3), agreed=0, lags=True).rule == ""
    assert judged(check(0.3, 0.3, prompt="token 3"), agreed=0, lags=True).rule == PROMPT


def test_prompts_alone_are_compared_where_there_are_no_log_probs():
    assert judged(Agreement()).ratio is None
    found = judged(Agreement(prompt="token 3"))
    assert (found.rule, found.ratio) == (PROMPT, None)
    assert "vLLM server got another prompt than the trainer: token 3" in found.text


def test_turns_that_are_apart_alone_are_judged_by_themselves_and_are_not_called_stale():
    prompts = Agreement(prompts=4)
    found = of_turns(prompts, check(1e-6, 1e-6), check(0.03, 0.03, first_gap="at turn 2"), check(1e-6, 1e-6))
    assert found.rule == WEIGHTS
    assert "disagree on some turns alone" in found.text
    assert found.text.endswith("; at turn 2")
    assert "stale" not in found.text
    everywhere = of_turns(prompts, check(0.03, 0.03), check(0.03, 0.03))
    assert "disagree on sampled tokens" in everywhere.text
    assert "stale" in everywhere.text
    few = Agreement(apart(0.03, 8), apart(0.03, 8))
    assert of_turns(prompts, check(1e-6, 1e-6), few).rule == "", "too few tokens to be judged"


def decode(ids):
    return "".join(WORDS[token] for token in ids)


WORDS = [
    "<pad>",
    "<system>",
    "be brief ",
    "<user>",
    "what is this? ",
    "<assistant>",
    "<think>",
    "yes",
    "<img>",
]
SYSTEM, BRIEF, USER, QUESTION, ASSISTANT, THINK, YES, IMAGE = range(1, 9)
ROW = [SYSTEM, BRIEF, USER, IMAGE, IMAGE, IMAGE, QUESTION, ASSISTANT, YES, YES]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (ROW[:8], ""),
        ([SYSTEM, BRIEF, USER, IMAGE, QUESTION, ASSISTANT], ""),  # reported before it was expanded
        (
            [SYSTEM, BRIEF, USER, IMAGE, IMAGE, QUESTION, ASSISTANT],
            "images are [2] tokens in the engine and [3] in",
        ),
        ([SYSTEM, BRIEF, USER, QUESTION, ASSISTANT], "images are [] tokens in the engine"),
        ([SYSTEM, USER, IMAGE, IMAGE, IMAGE, QUESTION, ASSISTANT], "token 1 is '<user>' in the engine"),
        ([*ROW[:8], THINK], "'<think>' in the engine and 'yes' in the trainer"),
        ([*ROW, YES], "token 7 is 'yes' in the engine and '' in the trainer"),
        ([SYSTEM, BRIEF, USER, *[IMAGE] * 3, *[QUESTION] * 12, ASSISTANT], "'what is this? ' in the engine"),
    ],
)
def test_how_prompts_differ(engine, words):
    found = prompt_difference(engine, ROW, {IMAGE}, 1, decode)
    assert words in found
    assert bool(found) == bool(words)


def test_two_images_that_are_resized_differently_differ_though_their_tokens_add_up():
    first, second = ([USER, *[IMAGE] * n, QUESTION, *[IMAGE] * (5 - n), ASSISTANT] for n in (2, 3))
    found = prompt_difference(first, second, {IMAGE}, 2, decode)
    assert "images are [2, 3] tokens in the engine and [3, 2] in the trainer" in found
    half = [USER, IMAGE, QUESTION, *[IMAGE] * 3, ASSISTANT]
    assert "[1, 3] tokens in the engine" in prompt_difference(half, first, {IMAGE}, 2, decode)
    beside = [USER, IMAGE, IMAGE, ASSISTANT]
    assert prompt_difference(beside, [USER, *[IMAGE] * 9, ASSISTANT], {IMAGE}, 2, decode) == ""
