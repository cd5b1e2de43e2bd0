"""In 16 and in 32 bits a pack of every decoder is as near to double precision as ms-swift's rows are.

Rows padded on either side and rows one at a time are stock's ways to compute one thing; rounding takes each
somewhere else. A pack adds a prompt's gradients up in another order and begins completions at a new chunk of the
delta rule, so it rounds in its own way: it may be as far off as stock is, not further.
"""

import copy
import itertools
import random
import statistics
from functools import partial

import pytest
import torch

from tests.group import trees
from tests.group.batches import collate
from tests.group.test_decoders import DECODERS, build, off, packed
from tests.group.test_forward import gradients, relative, stock_logps
from tests.group.test_tree import layout_of
from tests.precision import DOUBLE, in_float64

# Two draws of one noise; the median over all decoders shows a bias that is smaller than that.
ONE_DRAW, MEDIAN = 2.0, 1.1
LAYOUTS = ("left", "right", "one by one")


def tokens(count, seed):
    return torch.randint(5, 64, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def rows():
    """Two prompts and eight completions, shorter and longer than a chunk (64 tokens) of the delta rule."""
    long, short = tokens(90, 1), tokens(40, 2)
    sizes = [(long, 30), (long, 7), (long, 12), (long, 25), (short, 70), (short, 22), (short, 3), (short, 18)]
    return [(prompt, tokens(size, 3 + number)) for number, (prompt, size) in enumerate(sizes)]


def outcome(model, logps):
    """Log-probs of all completions, and the gradients of their sum with advantages 1 and -1, in turn."""
    model.zero_grad()
    sum(own.sum() * (-1) ** number for number, own in enumerate(logps)).backward()
    every = [one.grad.double().flatten() for one in model.parameters() if one.grad is not None]
    return torch.cat(logps).detach().double(), torch.cat(every)


def of_pack(model):
    _, mask, ours = packed(model, rows(), "left", "sdpa")
    return outcome(model, [own[kept] for own, kept in zip(ours, mask, strict=True)])


def of_rows(model, layout):
    batches = [[row] for row in rows()] if layout == "one by one" else [rows()]
    logps = []
    for batch in batches:
        inputs = collate(batch, layout if layout in ("left", "right") else "left")
        mask = inputs.pop("completion_mask")
        logps += [own[kept] for own, kept in zip(stock_logps(model, inputs, mask), mask, strict=True)]
    return outcome(model, logps)


def apart(way, truth):
    """How far log-probs and gradients are from the true ones, as shares of these."""
    return [float((found - right).norm() / right.norm()) for found, right in zip(way, truth, strict=True)]


def distances(model):
    """From double precision, of log-probs and of gradients: of a pack, and the largest of stock's layouts."""
    ours, *stock = of_pack(model), *(of_rows(model, layout) for layout in LAYOUTS)
    with in_float64():
        truth, packed_truth = of_rows(model.double(), "right"), of_pack(model)
    assert max(apart(packed_truth, truth)) < DOUBLE
    furthest = [max(figures) for figures in zip(*(apart(way, truth) for way in stock), strict=True)]
    return apart(ours, truth), furthest


IN_THE_GATE = (
    *("deepseek_v3", "gemma3", "llama", "qwen3_moe"),
    *("olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_next"),  # with recurrent layers
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "names", [IN_THE_GATE, pytest.param(tuple(DECODERS), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_pack_is_as_near_to_double_precision_as_rows_are(names, dtype):
    ratios = {}
    for name in itertools.filterfalse(off, names):
        ours, stock = distances(build(name, {"max_position_embeddings": 256}).to(dtype))
        ratios[name] = [mine / theirs for mine, theirs in zip(ours, stock, strict=True)]
    shown = {name: tuple(round(ratio, 2) for ratio in both) for name, both in ratios.items()}
    print(shown)
    assert not [name for name, both in ratios.items() if max(both) > ONE_DRAW], shown
    for figure in range(2):
        assert statistics.median(both[figure] for both in ratios.values()) <= MEDIAN, shown


@pytest.mark.parametrize("form", ["branches", "edited turns"])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_tree_is_about_as_near_to_double_precision_as_rows_are(name, form):
    """Keys of shared runs get their gradients from many places, each sum of which is rounded."""
    make = {"branches": trees.branching, "edited turns": partial(trees.caterpillar, thought=20)}[form]
    size = {"run": 40, "width": 3} if form == "branches" else {"turn": 40, "turns": 6, "trajectories": 4}
    rows = make(random.Random(0), prompt=60, **size)
    assert max(node.level for node in layout_of(rows).nodes) > 2
    model = build(name, {"max_position_embeddings": 1024}).bfloat16()
    inputs, mask, logps = packed(model, rows, "right", "sdpa", worth=1)
    ours = gradients(model, logps)
    stock = gradients(model, stock_logps(model, inputs, mask).float())
    with in_float64():
        exact = copy.deepcopy(model).double()
        true = gradients(exact, stock_logps(exact, inputs, mask))
    assert relative(ours, true) < 1.25 * relative(stock, true)
