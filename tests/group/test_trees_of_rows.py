"""Rows that share more than a prompt: log-probs and gradients are those of the rows, in every kind of layer."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import analyse
from tests.group import trees
from tests.group.models import FAMILIES, VOCAB, Picture
from tests.group.test_decoders import DECODERS, build, packed
from tests.group.test_forward import gradients, relative, stock_logps
from tests.group.test_images_in_completions import Described, batch
from tests.group.test_tree import layout_of
from tests.precision import DOUBLE, in_float64

LONG = {"max_position_embeddings": 256}


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


def check(model, rows, side="right", worth=1):
    inputs, mask, ours = packed(model, rows, side, "sdpa", worth)
    equal(model, ours, stock_logps(model, inputs, mask))


def equal(model, ours, stock):
    torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
    expected, got = gradients(model, stock), gradients(model, ours)
    assert expected.keys() == got.keys()
    assert relative(got, expected) < DOUBLE
    for name in expected:  # of each parameter by itself; what is 0 is rounding of 0
        assert (got[name] - expected[name]).norm() <= DOUBLE * max(expected[name].norm(), 1.0), name


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", sorted(DECODERS))
def test_all_forms_at_once_in_every_decoder(name, side):
    assert max(node.level for node in layout_of(trees.FORMS["all at once"]).nodes) >= 2
    check(build(name, LONG).double(), trees.FORMS["all at once"], side)


@pytest.mark.parametrize("form", sorted(trees.FORMS))
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3_5"])
def test_each_form_by_itself(name, form):
    check(build(name, LONG).double(), trees.FORMS[form])


@pytest.fixture(scope="module")
def hybrid():
    return build("qwen3_5", LONG).double()


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 20]))
@settings(max_examples=12)
def test_random_trees(hybrid, seed, worth):
    rng, rows = random.Random(seed), []
    for _ in range(rng.randrange(2, 9)):
        prompt, done = rng.choice(rows) if rows and rng.random() < 0.7 else (trees.tokens(rng, 5), [])
        ids = done[: rng.randrange(len(done) + 1)] if done else []
        rows.append((prompt, ids + [rng.randrange(10, 13) for _ in range(rng.randrange(1, 9))]))
    losses = [[1, *(int(rng.random() < 0.7) for _ in ids[1:])] for _, ids in rows]
    rows = [(prompt, (ids, mask)) for (prompt, ids), mask in zip(rows, losses, strict=True)]
    check(hybrid, rows, rng.choice(["left", "right"]), worth)


def turns(rng):
    """Rows of trajectories that get a crop in each tool turn; the last row of each parts at an image."""
    said = {}

    def answer(*path):
        return said.setdefault(path, [*trees.tokens(rng, 5)])

    rows = []
    for first, second in ((1, 2), (1, 3), (3, 2)):
        prompt = [*PROMPT, Picture(1), 6, *answer(), Picture(first), 7]
        rows.append((prompt, answer(first), [Picture(second)], answer(first, second)))
    return [*rows, rows[0], ([*PROMPT, Picture(2), 6], [8, 9], [], [])]


PROMPT = list(range(10, 80))  # long enough to be shared by tasks with other images


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_images_of_tool_turns_stand_at_any_depth(name, side):
    family = FAMILIES[name]
    interface.install("sdpa")
    model = family.model().double()
    inputs, mask = batch(family, model, turns(random.Random(0)), side)
    micro = analyse(inputs, mask, Described(), PackForm("sdpa"))
    assert micro.reason == ""
    assert max(node.level for node in micro.pack.layout.nodes) >= 2
    ((images, which),) = micro.wanted()
    assert len(which) < len(images.keys), "an image of a shared run stands there once"
    packed = micro.forward_inputs(encoded=False)
    ours = packed_scores(model, model.lm_head, packed, micro.pack, vocab_size=VOCAB)[..., 0]
    equal(model, ours, stock_logps(model, inputs, mask))


def test_crops_of_one_size_part_the_rows_at_their_first_token():
    """Their tokens and positions are equal; only what they show is not."""
    family = FAMILIES["qwen2_5_vl"]
    model = family.model().double()
    crop = Picture(1)
    inputs, mask = batch(family, model, [([*PROMPT, crop, 5], [6, 7], [], [])] * 2, "right")
    pixels = inputs["pixel_values"].clone()
    pixels[len(pixels) // 2 :] += 1
    micro = analyse({**inputs, "pixel_values": pixels}, mask, Described(), PackForm("sdpa"))
    assert [node.length for node in micro.pack.layout.nodes] == [len(PROMPT) + 1, 9, 9]
    same = analyse(inputs, mask, Described(), PackForm("sdpa"))
    assert [node.length for node in same.pack.layout.nodes] == [len(PROMPT) + 9, 1, 1]


def test_positions_that_differ_inside_an_image_part_the_rows_before_it():
    """As of one video at two frame rates: no node ends inside an image."""
    family = FAMILIES["qwen2_5_vl"]
    model = family.model().double()
    inputs, mask = batch(family, model, [([*PROMPT, Picture(1), 5], [6, 7], [], [])] * 2, "right")
    positions = inputs["position_ids"].clone()
    positions[:, 1, len(PROMPT) + 4 :] += 3
    micro = analyse({**inputs, "position_ids": positions}, mask, Described(), PackForm("sdpa"))
    assert [node.length for node in micro.pack.layout.nodes] == [len(PROMPT) + 1, 9, 9]
