"""Scripted completions, SGD: every micro-batch and the parameters of ours are those of stock."""

from contextlib import nullcontext

import pytest
from conftest import built_once
from precision import in_float64
from sweep import axes, inputs, runner
from sweep.table import GATE, SLOW

# Of a figure of a micro-batch; of the parameters, relative to the way of the farthest.
TOLERANCE = {32: (1e-5, 1e-4), 16: (3e-2, 0.15)}


@pytest.fixture(scope="module")
def bench(shared_folder):
    """Checkpoint and dataset of a configuration."""

    def of(configuration):
        data = configuration.data or inputs.usual_data(configuration.model)
        dtype = "bfloat16" if configuration.bits == 16 else "float64"

        def checkpoint(seed):
            return built_once(
                shared_folder / "sweep" / f"{configuration.model}-{dtype}-{seed}",
                lambda folder: inputs.MODELS[configuration.model](folder, dtype=dtype, seed=seed),
            )

        model = checkpoint(0)
        if (teacher := configuration.options.get("teacher_model")) in ("TEACHER", "MODEL"):
            configuration.options["teacher_model"] = checkpoint(1) if teacher == "TEACHER" else model
        written = built_once(shared_folder / "sweep" / data.replace(" ", "_"), inputs.DATA[data])
        return model, next(written.glob("*.jsonl"))

    return of


def hold_against_stock(configuration, bench, tmp_path):
    model, dataset = bench(configuration)
    configuration.options.update(inputs.types(configuration.model))
    with in_float64() if configuration.bits == 32 else nullcontext():
        runs = [runner.record(kind, configuration, model, dataset, tmp_path) for kind in ("Stock", "Ours")]
    found = runner.apart(*runs)
    figure, parameters = TOLERANCE[configuration.bits]
    assert (found.ours == 0) == configuration.still
    assert (found.moved == 0) == configuration.still, "a run that moves nothing compares little"
    assert max(found.figures.values()) <= figure, found
    assert found.parameters <= parameters, found


@pytest.mark.parametrize("name", GATE)
def test_equals_stock(name, bench, tmp_path):
    hold_against_stock(GATE[name], bench, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_equals_stock_too(name, bench, tmp_path):
    hold_against_stock(SLOW[name], bench, tmp_path)


COVERING = axes.covering()
# Those of the gate.
FIRST = axes.representative(COVERING, 20)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, id=", ".join(axes.row_of(name).values()), marks=() if name in FIRST else pytest.mark.slow
        )
        for name in COVERING
    ],
)
def test_every_two_values_of_two_axes_equal_stock(name, bench, tmp_path):
    hold_against_stock(COVERING[name], bench, tmp_path)


def test_every_two_values_of_two_axes_meet():
    """But for those that ms-swift itself cannot train together; a name says all values of its row."""
    text = {str(value): value for values in axes.AXES.values() for value in values}
    rows = [
        {part.split(" ", 1)[0]: text[part.split(" ", 1)[1]] for part in name.split(", ")} for name in COVERING
    ]
    assert len(rows) >= 150
    assert not list(axes.missing(rows))
