"""The verdict on an engine, from figures alone."""

import math

import pytest

from swift_grpo_ext.trainer.engine import agreement
from swift_grpo_ext.trainer.engine.agreement import (
    Agreement,
    Distance,
    EngineFacts,
    TurnFigures,
    distance,
    judge,
)
from swift_grpo_ext.trainer.engine.prompts import grid_difference, prompt_difference

ENGINE = EngineFacts("vLLM server", configured={"temperature": 0.9, "top_p": 1.0})


def apart(gap, tokens=32):
    return distance([0.0] * tokens, [gap] * tokens)


def fault(now, before, engine):
    record = judge(now, before, engine)
    return record.text or record.note


def check(begin, rest, step=0, **more):
    return Agreement(step, apart(begin), apart(rest), **more)


def test_distance_adds_up_and_takes_what_is_not_finite_for_large():
    both = distance([-1.0, -2.0], [-1.5, -2.0]) + distance([-math.inf], [-1.0])
    assert (both.tokens, both.absolute, both.largest) == (3, 20.5, 20.0)
    assert Distance().mean_ratio == 1.0


@pytest.mark.parametrize(("half", "gap"), [(False, 1e-3), (True, 0.03)])
def test_rounding_is_no_fault(half, gap):
    assert fault(check(gap, gap), [], EngineFacts("vLLM colocate", half=half)) == ""


@pytest.mark.parametrize(
    ("hypothesis", "words"),
    [
        ("temperature 0.5", "samples at temperature 0.5, the trainer at 0.9: --temperature"),
        ("temperature 1", "or reports log-probs before temperature"),
        ("top_p 0.8", "samples at top_p 0.8, the trainer at 1: --top_p"),
        (agreement.RAW, "before temperature and filters"),
        (agreement.UNFILTERED, "without the trainer's top_k"),
        (agreement.NO_ADAPTERS, "without LoRA"),
        (agreement.REFERENCE, "no weight sync has reached"),
    ],
)
def test_what_explains_the_distance_is_the_cause(hypothesis, words):
    found = check(0.5, 0.5, hypotheses={"temperature 1.7": apart(0.4), hypothesis: apart(1e-4)})
    assert words in fault(found, [], ENGINE)


def test_weights_that_agreed_before_are_stale():
    before = [check(1e-5, 1e-5)]
    assert "agreed at step 0, so the engine's weights are stale" in fault(check(0.3, 0.3, 1), before, ENGINE)


def test_weights_that_never_agreed_are_others():
    assert "another checkpoint" in fault(check(0.3, 0.3), [], ENGINE)


def test_a_drift_is_numerics():
    assert "drift apart later" in fault(check(1e-4, 0.2), [], ENGINE)


@pytest.mark.parametrize(("gap", "rule"), [(0.08, agreement.NUMERICS), (0.3, agreement.WEIGHTS)])
def test_a_little_more_than_usual_is_not_called_other_weights(gap, rule):
    assert judge(check(gap, gap), [], EngineFacts("vLLM colocate", half=True)).rule == rule


def test_a_distance_that_grows_slowly_is_not_called_stale_but_one_that_leaps_is():
    half = EngineFacts("vLLM colocate", half=True)
    growing = [check(gap, gap, step) for step, gap in enumerate((0.01, 0.03, 0.045))]
    assert judge(check(0.06, 0.06, 3), growing, half).rule == agreement.NUMERICS
    assert judge(check(0.12, 0.12, 3), growing[:1], half).rule == agreement.WEIGHTS


def figures(turn, gap, pictures, row="row 1"):
    return TurnFigures(row, turn, 32, ", ".join(["56 x 56"] * pictures), apart(gap), "token 0")


@pytest.mark.parametrize(
    ("turns", "rule", "words"),
    [
        (
            [figures(2, 0.3, 2), figures(1, 1e-5, 1)],
            agreement.PIXELS,
            "the image that it added is another one",
        ),
        ([figures(2, 0.3, 1), figures(1, 1e-5, 1)], agreement.WEIGHTS, "in the middle of a trajectory"),
        ([figures(1, 0.3, 1), figures(2, 0.3, 2)], agreement.WEIGHTS, "they agreed at step 0"),
        ([figures(1, 0.3, 1), figures(1, 1e-5, 1, "row 2")], agreement.WEIGHTS, "they agreed at step 0"),
    ],
)
def test_turns_that_agree_say_what_it_is_not(turns, rule, words):
    found = judge(check(0.2, 0.2, 1, turns=tuple(turns)), [check(1e-5, 1e-5)], ENGINE)
    assert (found.rule, words in found.text) == (rule, True), found.text


def test_what_explains_the_turns_that_are_apart_is_the_cause():
    """Of three turns one is at another temperature: over all of them the trial explains nothing."""
    now = check(0.1, 0.1, apart=apart(0.3), hypotheses={"temperature 0.5": apart(1e-3)})
    assert "samples at temperature 0.5" in fault(now, [], ENGINE)


def test_the_ranks_that_are_apart_are_named():
    assert "vLLM server of rank 1 and trainer disagree" in fault(
        check(0.3, 0.3, ranks=" of rank 1"), [], ENGINE
    )


def test_rollouts_one_step_behind_are_no_fault_but_the_first_and_what_is_not_weights():
    lagging = EngineFacts("vLLM server", lags=True)
    assert "another checkpoint" in fault(check(0.3, 0.3), [], lagging)
    before = [check(1e-5, 1e-5)]
    assert fault(check(0.3, 0.3, 1), before, lagging) == ""
    assert "another prompt" in fault(check(0.3, 0.3, 1, prompt="token 3"), before, lagging)
    colder = check(0.3, 0.3, 1, hypotheses={"temperature 0.3": apart(1e-3)})
    assert "samples at temperature 0.3" in fault(colder, before, lagging)
    unsynced = {agreement.REFERENCE: apart(1e-3)}
    assert fault(check(0.3, 0.3, 2, hypotheses=unsynced), before, lagging) == "", "of the step before"
    assert "no weight sync" in fault(check(0.3, 0.3, 50, hypotheses=unsynced), before, lagging)


def test_prompts_alone_are_compared_where_there_are_no_log_probs():
    silent = Agreement(0, garbage=0.9)
    assert judge(silent, [], ENGINE).ratio is None
    assert "90% of the completions are loops" in fault(silent, [], ENGINE)
    assert "another prompt" in fault(Agreement(0, prompt="token 3"), [], ENGINE)


@pytest.mark.parametrize(("gap", "words"), [(1e-5, "chat template"), (1.0, "the engine may not support")])
def test_noise_is_the_models_or_the_engines(gap, words):
    found = check(gap, gap, garbage=0.9, engine_logp=-9.0, trainer_logp=-9.1)
    assert words in fault(found, [], ENGINE)
    assert "loops" in fault(found, [], ENGINE)


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
            "the engine has 2 image tokens, the trainer 3",
        ),
        ([SYSTEM, USER, IMAGE, IMAGE, IMAGE, QUESTION, ASSISTANT], "the system prompt differs"),
        ([*ROW[:8], THINK], "thinking prefix"),
        ([SYSTEM, BRIEF, USER, *[IMAGE] * 3, *[QUESTION] * 12, ASSISTANT], "the chat template differs"),
    ],
)
def test_how_prompts_differ(engine, words):
    found = prompt_difference(engine, ROW, {IMAGE}, decode)
    assert words in found
    assert bool(found) == bool(words)


def test_two_images_that_are_resized_differently_differ_though_their_tokens_add_up():
    first, second, third = ([USER, *[IMAGE] * n, QUESTION, *[IMAGE] * (5 - n), ASSISTANT] for n in (2, 3, 1))
    found = prompt_difference(first, second, {IMAGE}, decode)
    assert "the engine has 2 image tokens for image 1, the trainer 3" in found
    found = prompt_difference(third, first, {IMAGE}, decode)
    assert "the engine has 1 image tokens for image 1, the trainer 2" in found, "image 2 is not as expanded"
    half = [USER, IMAGE, QUESTION, *[IMAGE] * 3, ASSISTANT]
    found = prompt_difference(half, first, {IMAGE}, decode)
    assert "image 1 is one token in the engine and 2 in the trainer" in found


@pytest.mark.parametrize(
    ("size", "grid", "words"),
    [
        ((280, 140), (1, 10, 20), ""),
        ((140, 280), (1, 10, 20), "image 1 is 140 x 280 pixels in the engine and 280 x 140 in the trainer"),
        ((640, 480), (1, 34, 46), ""),  # as it was before it was resized
        ((641, 480), (1, 10, 20), ""),
    ],
)
def test_an_image_that_is_turned_on_one_side_has_as_many_tokens(size, grid, words):
    found = grid_difference([size], [grid])
    assert words in found
    assert bool(found) == bool(words)
    assert grid_difference([size, size], [grid]) == "", "not told of each"
