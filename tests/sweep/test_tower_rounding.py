"""In 16 bits the gradients of a step on images are as near to double precision as ms-swift's own are.

Ours encodes an image once for all rows of a micro-batch, and adds up what they say of it before the tower's
backward pass. ms-swift encodes it for each row, so each rounds in its own way. Rows padded on either side and
smaller micro-batches are ms-swift's ways to compute one thing: ours may be as far off as these are.
"""

import statistics
from contextlib import contextmanager, nullcontext

import pytest
from pairs.cases import cut
from sweep import inputs, runner
from sweep.table import Configuration
from sweep.trainers import Recorded
from torch.optim.optimizer import register_optimizer_step_pre_hook

from swift_grpo_ext.group.vision import outside_of_language
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.trainer.host import base_model
from tests.conftest import built_once
from tests.precision import DOUBLE, double_copy, in_float64
from tests.trainer.runs import CHANGING_FEATURES, gains

# As in tests/group/test_rounding.py: two draws of one noise, and a bias over all that is smaller than that.
ONE_DRAW, MEDIAN = 2.0, 1.1
BF16 = {"torch_dtype": "bfloat16", "bf16": True}
ONE_STEP = {**cut(8), "max_steps": 1, "beta": 0}
LAYOUTS = ({}, {"padding_side": "left"}, cut(4, 2))
TRAINED = {"freeze_vit": False, "freeze_aligner": False}
SEEING = tuple(sorted(name for name in TINY if TINY[name].vision))


@contextmanager
def gradients():
    """Of the first step of the run inside: all parameters', and by themselves those outside of the decoder."""
    found = {}

    def keep(optimizer, *given):
        if not found:
            base = base_model(Recorded.latest, Recorded.latest.model)
            every = {name: one.grad.double() for name, one in base.named_parameters() if one.grad is not None}
            tower = {name for name, _ in outside_of_language(base)} & {*every}
            found["all"] = every
            found["tower"] = {name: every[name] for name in tower}

    hook = register_optimizer_step_pre_hook(keep)
    try:
        yield found
    finally:
        hook.remove()


def apart(found, truth):
    """How far gradients are from the true ones, as a share of these."""
    assert {*found} == {*truth}
    squares = sum(float((found[name] - truth[name]).square().sum()) for name in truth)
    return (squares / sum(float(one.square().sum()) for one in truth.values())) ** 0.5


def run(kind, family, folder, options, checkpoint, dataset, double=False):
    settings = {**ONE_STEP, **inputs.types(family), **options, **({} if double else BF16)}
    configuration = Configuration(settings, family)
    with in_float64() if double else nullcontext(), gradients() as found:
        runner.record(kind, configuration, double_copy(checkpoint) if double else checkpoint, dataset, folder)
    return found


def ratios(family, training, shared_folder, tmp_path):
    """Distances of ours from double precision, in those of ms-swift's farthest layout, by part of the model."""
    checkpoint = built_once(
        shared_folder / "sweep" / f"{family}-bfloat16-0",
        lambda folder: inputs.MODELS[family](folder, dtype="bfloat16", seed=0),
    )
    written = built_once(shared_folder / "sweep" / "image", inputs.DATA["image"])
    given = checkpoint, next(written.glob("*.jsonl"))
    truth = run("Stock", family, tmp_path / "truth", training, *given, double=True)
    exact = run("Ours", family, tmp_path / "exact", training, *given, double=True)
    ours = run("Ours", family, tmp_path / "ours", training, *given)
    stock = [
        run("Stock", family, tmp_path / f"stock{number}", {**training, **layout}, *given)
        for number, layout in enumerate(LAYOUTS)
    ]
    states = gains(tmp_path / "ours" / "Ours")
    assert states["shared_prefix"]["state"] == "on"
    assert states["vision_once"]["state"] == ("off" if training or family in CHANGING_FEATURES else "on")
    parts = [part for part in truth if truth[part]]
    assert ("tower" in parts) == (bool(training) or family in CHANGING_FEATURES)
    assert max(apart(exact[part], truth[part]) for part in parts) < DOUBLE
    return {
        part: apart(ours[part], truth[part]) / max(apart(one[part], truth[part]) for one in stock)
        for part in parts
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("training", [{}, TRAINED], ids=["frozen", "trained"])
def test_gradients_of_a_step_on_images_are_as_near_to_double_precision(training, shared_folder, tmp_path):
    found = {}
    for family in SEEING:
        found[family] = ratios(family, training, shared_folder, tmp_path / family)
        print(family, {part: round(ratio, 2) for part, ratio in found[family].items()})
    assert not {family: parts for family, parts in found.items() if max(parts.values()) > ONE_DRAW}
    for part in ("all", "tower") if training else ("all",):
        assert statistics.median(parts[part] for parts in found.values()) <= MEDIAN
