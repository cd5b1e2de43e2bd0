"""Which images stand in a pack, and in which order, whatever nodes their tokens lie in."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.media import PIXELS, VIDEO_PIXELS, Medium
from swift_grpo_ext.group.micro_batch import analyse, in_parts, narrowed
from tests.group.batches import collate
from tests.group.models import FAMILIES, VOCAB, Picture
from tests.group.test_forward import stock_logps
from tests.group.test_images_in_completions import Described, batch
from tests.group.test_trees_of_rows import equal
from tests.precision import in_float64

IMAGE, VIDEO = 90, 91
SHARED = list(range(100, 170))  # tokens, enough to be shared


class Bare:
    """A family without marks around its images: two of them can stand side by side."""

    media = (Medium(PIXELS, IMAGE), Medium(VIDEO_PIXELS, VIDEO))
    encoder = ("model.visual", "forward")


def shown(row):
    """Tokens of a row of ids, and of images ``("name", tokens)`` (a video: ``("v...", tokens)``)."""
    return [
        token
        for part in row
        for token in (
            [VIDEO if part[0][0] == "v" else IMAGE] * part[1] if isinstance(part, tuple) else [part]
        )
    ]


def analysed(rows, form=None, **more):
    """A micro-batch of rows ``(prompt, said)``; pixels are the names of the images."""
    pairs = [(shown(prompt), (shown(said), marks)) for prompt, said, marks in rows]
    inputs = collate(pairs)
    mask = inputs.pop("completion_mask")
    parts = [part for prompt, said, _ in rows for part in [*prompt, *said] if isinstance(part, tuple)]
    for pixels, grid, first in ((PIXELS, "image_grid_thw", "i"), (VIDEO_PIXELS, "video_grid_thw", "v")):
        own = [part for part in parts if part[0][0] == first]
        if own:
            inputs[grid] = torch.tensor([[1, 1, tokens] for _, tokens in own])
            inputs[pixels] = torch.cat([torch.full((tokens, 2), float(name[1:])) for name, tokens in own])
    return analyse({**inputs, **more}, mask, Bare(), form or PackForm("sdpa"))


def order_of(micro):
    """Names of the images of a pack, by medium, in the order of their tokens."""
    return [
        [int(images.pixels_of([image])[0, 0]) for image in which] for images, which in micro.wanted() or []
    ]


def test_equal_images_side_by_side_are_two():
    twice = [*SHARED, ("i1", 3), ("i1", 3)]
    micro = analysed([(twice, [5, 6], [1, 1]), (twice, [7, 8], [1, 1])])
    assert micro.reason == ""
    assert order_of(micro) == [[1, 1]]


def test_a_node_that_begins_with_an_image_behind_one_that_ends_with_one():
    prompt = [*SHARED, 5, ("i1", 3)]
    micro = analysed(
        [
            ([*prompt, ("i1", 2), 6], [7, 8], [1, 1]),
            ([*prompt, ("i2", 3), 6], [9, 8], [1, 1]),
            ([*prompt, ("i1", 2), 6], [8, 9], [1, 1]),
        ]
    )
    assert micro.reason == ""
    assert order_of(micro) == [[1, 1, 2]]
    starts = {node.start for node in micro.pack.layout.nodes if node.parent >= 0}
    ids = micro.pack.gather(micro.inputs["input_ids"])[0]
    assert sum(int(ids[start]) == IMAGE == int(ids[start - 1]) for start in starts) >= 1


def test_images_of_a_row_that_ends_inside_a_longer_one_are_those_of_the_longer_one():
    prompt = [*SHARED, ("i1", 2)]
    said, marks = [*SHARED, ("i2", 3), 6], [*[1] * len(SHARED), 0, 0, 0, 1]
    short = (prompt, said, marks)
    long = (prompt, [*said, ("i3", 2), 7], [*marks, 0, 0, 1])
    micro = analysed([short, long, short])
    assert order_of(micro) == [[1, 2, 3]]
    inside = (prompt, said[:-1], [*[1] * len(SHARED), 1, 1, 0])  # ends with a loss within the image
    assert order_of(analysed([long, inside])) == [[1, 2, 3]]


def test_images_and_videos_have_an_order_of_their_own():
    prompt = [*SHARED, ("v1", 3), 5, ("i2", 2), ("v3", 2), 6]
    micro = analysed([(prompt, [7, 8], [1, 1]), (prompt, [8, ("v1", 3), 9], [1, 0, 0, 0, 1])])
    assert micro.reason == ""
    assert order_of(micro) == [[2], [1, 3, 1]]


@pytest.mark.parametrize("said", [[("i2", 3), 7], [7, ("i2", 3)]])
def test_an_image_of_which_a_pack_has_only_a_part_is_none(said):
    """As of a loss on placeholders: the first part lies in the prompt, or the last behind the last loss."""
    marks = [0, 1, 1, 1] if said[-1] == 7 else [1, 1, 1, 0]
    micro = analysed([([*SHARED, 5], said, marks), ([*SHARED, 5], said, marks)])
    assert "an image reaches" in micro.reason
    assert micro.pack is None
    assert order_of(micro) == [[2, 2]], "of all rows, in whose forward they stand"


def test_parts_of_a_micro_batch_have_the_images_of_their_rows():
    rows = [([*SHARED, ("i" + name, 2)], [int(name), 7], [1, 1]) for name in "1122"]
    micro = analysed(rows)
    assert [order_of(part) for part in in_parts(micro, 2)] == [[[1]], [[2]]]
    needed = torch.zeros_like(micro.completion_mask, dtype=torch.bool)
    needed[2] = True
    assert order_of(narrowed(micro, needed)) == [[2]]
    assert order_of(narrowed(micro, needed & False)) == []


@pytest.mark.parametrize("marked", [True, False])
def test_what_the_model_is_told_of_a_token_decides_who_sees_it_not_where_images_are(marked):
    """transformers 5.15's processor of Gemma 3 marks no image: then its tokens do not see each other."""
    prompt = [*SHARED, ("i1", 3), 5]
    rows = [(prompt, [6, 7], [1, 1]), (prompt, [7, 8], [1, 1])]
    ids = analysed(rows).inputs["input_ids"]
    types = (ids == IMAGE).long() * marked
    micro = analysed(rows, PackForm("sdpa", image_blocks="all"), token_type_ids=types)
    assert micro.reason == ""
    blocks = micro.pack.layout.blocks
    assert (blocks is not None) == marked
    if marked:
        assert micro.pack.layout.positions()[blocks > 0].tolist() == [70, 71, 72]


def test_two_images_that_a_fork_parts_would_see_each_other_as_one_run():
    """As transformers numbers them: a run of image tokens is one image to Gemma."""
    prompt = [*SHARED, ("i1", 2)]
    said = [("i2", 2), 6, 7], [0, 0, 1, 1]
    other = [("i3", 2), 6, 7], [0, 0, 1, 1]
    rows = [(prompt, *said), (prompt, *other)]
    ids = analysed(rows).inputs["input_ids"]
    form = PackForm("sdpa", image_blocks="all")
    micro = analysed(rows, form, token_type_ids=(ids == IMAGE).long())
    assert micro.reason == "an image reaches from a prompt into a completion"


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def seeing(request):
    interface.install("sdpa")
    family = FAMILIES[request.param]
    with in_float64():
        return family, family.model().double()


def grown(rng):
    """Turns of a random tree: each row goes on from a part of another one, or begins anew."""
    said = []
    for _ in range(rng.randrange(2, 5)):
        prompt = [*range(10, 10 + rng.choice([3, 70])), Picture(rng.randrange(1, 4)), 6]
        if said and rng.random() < 0.8:
            before = rng.choice(said)
            cut = rng.randrange(len(before) + 1)
            prompt = before[:cut] if cut and rng.random() < 0.7 else prompt
        turn = [rng.randrange(10, 13) for _ in range(rng.randrange(3))]
        crops = [Picture(rng.randrange(1, 4)) for _ in range(rng.randrange(3))]
        said.append([*prompt, 8, *turn, *crops, 9])
    return [
        (
            row,
            [rng.randrange(10, 13) for _ in range(rng.randrange(1, 4))],
            [Picture(1)] * rng.randrange(2),
            [7],
        )
        for row in said
    ]


@given(st.integers(0, 10**6))
@settings(max_examples=5)
def test_random_trees_with_images_are_their_rows(seeing, seed):
    family, model = seeing
    rng = random.Random(seed)
    with in_float64():
        inputs, mask = batch(family, model, grown(rng), rng.choice(["left", "right"]))
        micro = analyse(inputs, mask, Described(), PackForm("sdpa"))
        assert micro.reason == ""
        given = micro.forward_inputs(encoded=False)
        if micro.pack is None:
            return
        ours = packed_scores(model, model.lm_head, given, micro.pack, vocab_size=VOCAB)[..., 0]
        equal(model, ours, stock_logps(model, inputs, mask))
