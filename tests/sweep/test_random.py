"""A hundred configurations at random: ours is ms-swift's wherever that trains, and trains where it differs by intent."""

import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import built_once
from precision import in_float64
from sweep import inputs, runner
from sweep.draw import NUMBER, drawn
from sweep.test_ranks import DOUBLE, steps

from swift_grpo_ext import testing
from swift_grpo_ext.errors import HostRunError
from tests.trainer.runs import gains

TESTS = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
# Of a figure, and of a parameter relative to the way of the farthest.
FIGURE, PARAMETERS = 1e-5, 1e-4
FIGURES = (
    "loss",
    "grad_norm",
    "reward",
)  # others are means over micro-batches, which two ranks cut otherwise
SHARDED = ("deepspeed", "fsdp", "ds3_gather_for_generation")


@pytest.fixture
def bench(shared_folder):
    """Checkpoint in double precision, or in single for DeepSpeed, and rows of a configuration."""

    def of(configuration):
        dtype = "float32" if "deepspeed" in configuration.options else "float64"
        built = built_once(
            shared_folder / "random" / f"{configuration.model}-{dtype}",
            lambda folder: inputs.MODELS[configuration.model](folder, dtype=dtype),
        )
        rows = built_once(
            shared_folder / "random" / configuration.data.replace(" ", "_"), inputs.DATA[configuration.data]
        )
        configuration.options.update(inputs.types(configuration.model))
        return built, next(rows.glob("*.jsonl"))

    return of


@pytest.mark.parametrize("number", range(NUMBER))
def test_a_random_configuration_equals_stock(number, bench, tmp_path):
    case = drawn(number)
    print(case.name)
    model, rows = bench(case.configuration)
    if case.way == "in this process":
        in_process(case, model, rows, tmp_path)
    elif case.way == "resumed":
        resumed(case, model, rows, tmp_path)
    else:
        by_ranks(case, model, rows, tmp_path)


def both(case, run, alike=None):
    """What ms-swift gives and what ours does, of a run by kind; skipped where ms-swift gives nothing.

    Ours may end only where ms-swift ends, too: in a run like it, where the one to equal is another.
    """
    try:
        ours = run("Ours")
    except Exception:
        skipped_unless_trained(alike or run)
        raise
    return (skipped_unless_trained(run), ours) if case.equals else None


def skipped_unless_trained(run):
    """The run of ms-swift; an error that the tests raise themselves is theirs, and no reason to skip."""
    try:
        return run("Stock")
    except Exception as error:
        raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        of_a_command = isinstance(error, HostRunError)  # raised by what started it
        if TESTS in raised_in.parents and not of_a_command:
            raise
        pytest.skip(f"ms-swift does not train it: {str(error)[-200:]}")


def in_process(case, model, rows, folder):
    with in_float64():
        runs = both(case, lambda kind: runner.record(kind, case.configuration, model, rows, folder))
    if runs:
        found = runner.apart(*runs)
        assert max(found.figures.values()) <= FIGURE, found
        assert found.parameters <= PARAMETERS or not found.moved, found


def by_ranks(case, model, rows, folder):
    """Under a launcher: on one rank, or ours on two against ms-swift's on one.

    Under ZeRO-3 ms-swift runs on as many ranks: adapters are drawn there after other random numbers.
    """
    options = case.configuration.options
    ranks = 2 if case.way == "two ranks" else 1
    plugins = [] if "deepspeed" in options else [DOUBLE]
    alone = {name: value for name, value in options.items() if name not in SHARDED}
    alone["per_device_train_batch_size"] *= ranks
    drawn_otherwise = options.get("deepspeed") == "zero3" and options.get("tuner_type", "full") != "full"

    def run(kind):
        by_itself = kind == "Stock" and not drawn_otherwise
        configuration = replace(case.configuration, options=alone) if by_itself else case.configuration
        return steps(kind, configuration, model, rows, folder, 1 if by_itself else ranks, plugins)

    def alike(kind):
        return steps(kind, case.configuration, model, rows, folder / "alike", ranks, plugins)

    if runs := both(case, run, alike):
        compare(*runs)
    assert gains(folder / "Ours")["shared_prefix"]["why"] != "self-check failed"


def resumed(case, model, rows, folder):
    """Ours from its own checkpoint, outside of a rollout's updates, against ours in one piece."""
    options = {**case.configuration.options, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole, again = (replace(case.configuration, options=dict(options)) for _ in range(2))
    try:
        expected = steps("Ours", whole, model, rows, folder / "whole", 1, [DOUBLE])
    except HostRunError:
        skipped_unless_trained(lambda kind: steps(kind, whole, model, rows, folder, 1, [DOUBLE]))
        raise
    saved = testing.newest_version(folder / "whole" / "Ours") / "checkpoint-2"
    again.options["resume_from_checkpoint"] = saved
    compare(expected[2:], steps("Ours", again, model, rows, folder / "again", 1, [DOUBLE]))


def compare(one, other):
    assert len(one) == len(other) > 0
    for expected, row in zip(one, other, strict=True):
        for figure in FIGURES:
            if figure in expected or figure in row:
                assert row[figure] == pytest.approx(expected[figure], rel=1e-4, abs=FIGURE), figure
