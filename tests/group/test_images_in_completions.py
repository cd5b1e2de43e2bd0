"""Completions with images of their own (results of tools): packed behind their prompt, each encoded once."""

import pytest
import torch

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.media import PIXELS, Medium
from swift_grpo_ext.group.micro_batch import analyse
from tests.group.batches import collate
from tests.group.models import FAMILIES, IMAGE, VOCAB, Picture
from tests.group.stars import stars_of
from tests.group.test_forward import gradients, relative, stock_logps
from tests.precision import DOUBLE, in_float64

CAT, DOG, COW = Picture(1), Picture(2), Picture(3)
# A prompt, what a completion says, the crop that it gets, and what it says then.
TURNS = {
    "one crop": [([5, CAT, 6], [8, 9], [DOG], [10, 11]), ([5, CAT, 6], [12], [COW], [13, 14, 15])],
    "some without": [([5, CAT, 6], [8, 9], [], []), ([5, CAT, 6], [12], [DOG], [13])],
    "several": [([5, CAT, 6], [8], [DOG, COW], [10]), ([5, CAT, 6], [12, 13], [COW], [14])],
    "text prompt": [([5, 6], [8], [DOG], [10]), ([5, 6], [12, 13], [CAT], [14]), ([7], [8, 9], [], [])],
    "a crop that nobody answers": [([5, CAT, 6], [8, 9], [DOG], []), ([5, CAT, 6], [12, 13], [], [])],
}


class Described:
    placeholder_token_ids = (IMAGE,)
    media = (Medium(PIXELS, IMAGE),)
    encoder = ("model.visual", "forward")


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def model(family):
    interface.install("sdpa")
    return family.model().double()


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


def batch(family, model, turns, side):
    """Inputs and completion mask; what the model has not written has no loss."""
    pictures, rows = [], []
    for prompt, said, crops, then in turns:
        pictures += [part for part in [*prompt, *crops] if isinstance(part, Picture)]
        shown = [token for crop in crops for token in family.tokens(crop)]
        loss = [1] * len(said) + [0] * len(shown) + [1] * len(then)
        asked = [token for part in prompt for token in _tokens(family, part)]
        rows.append((asked, ([*said, *shown, *then], loss)))
    inputs = collate(rows, side)
    mask = inputs.pop("completion_mask")
    inputs |= family.media(pictures)
    return inputs | family.positions(model, inputs), mask


def _tokens(family, part):
    return family.tokens(part) if isinstance(part, Picture) else [part]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("case", sorted(TURNS))
def test_log_probs_and_gradients_are_those_of_the_rows(family, model, case, side):
    inputs, mask = batch(family, model, TURNS[case], side)
    stock = stock_logps(model, inputs, mask)
    micro = analyse(inputs, mask, Described(), PackForm("sdpa"))
    assert micro.reason == ""
    assert micro.pack is not None
    packed = micro.forward_inputs(encoded=False)
    ours = packed_scores(model, model.lm_head, packed, micro.pack, vocab_size=VOCAB)[..., 0]
    torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
    expected, got = gradients(model, stock), gradients(model, ours)
    assert expected.keys() == got.keys()
    assert relative(got, expected) < DOUBLE


def test_prompts_are_told_apart_by_their_own_images_only(family, model):
    inputs, mask = batch(family, model, TURNS["one crop"], "right")
    micro = analyse(inputs, mask, Described(), PackForm("sdpa"))
    assert len(stars_of(micro.pack.layout)) == 1
    ((images, which),) = micro.wanted()
    seen = [images.keys[one] for one in which]
    assert len(seen) < len(images.keys)  # the prompt's picture once


def test_sizes_of_images_that_nobody_knows_are_told(family, model):
    inputs, mask = batch(family, model, TURNS["one crop"], "right")
    micro = analyse({**inputs, "tile_sizes": torch.ones(4, 2)}, mask, Described(), PackForm("sdpa"))
    assert micro.reason == "model inputs tile_sizes"
    assert micro.media is None
