"""Through the command, ours against stock: text models, and on two ranks FSDP2 and sequence parallelism."""

import os
from pathlib import Path

import pytest
from sweep import inputs
from sweep.table import COMMAND, RANKS, USERS_CUT

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.selftest.cases import BASE
from tests.forked import run_ranks
from tests.trainer.runs import gains

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
# Not kl: stock logs the mean of the ranks' means, ours the mean over all tokens.
FIGURES = ("loss", "grad_norm", "reward", "entropy/mean", "clip_ratio/region_mean", "teacher_kl")


def steps(kind, configuration, model, dataset, output, ranks):
    options = {
        **BASE,
        "max_steps": 3,
        "save_strategy": "no",
        "reward_funcs": "score",
        **configuration.options,
    }
    plugins = [plugin_file(), HERE / "plugin.py"]
    if "deepspeed" in configuration.options:
        plugins.insert(0, HERE.parent / "e2e" / "gloo_for_zero3.py")
    arguments = testing.grpo_arguments(model, dataset, output / kind, external_plugins=plugins, **options)
    paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    variables = {**USERS_CUT, **configuration.variables, "SWEEP_KIND": kind, "PYTHONPATH": paths}
    run_ranks("rlhf", arguments, variables, ranks=ranks, timeout=400)
    return [row for row in testing.read_logging(output / kind) if "loss" in row]


@pytest.mark.parametrize("name", COMMAND)
def test_one_rank_equals_stock(name, tmp_path):
    equals_stock(COMMAND[name], tmp_path, ranks=1)


@pytest.mark.two_ranks
@pytest.mark.parametrize("name", RANKS)
def test_two_ranks_equal_stock(name, tmp_path):
    equals_stock(RANKS[name], tmp_path, ranks=2)


def equals_stock(configuration, tmp_path, ranks):
    model = inputs.MODELS[configuration.model](tmp_path / "model")
    dataset = inputs.DATA[configuration.data or inputs.usual_data(configuration.model)](tmp_path / "data")
    configuration.options.update(inputs.types(configuration.model))
    if "teacher_model" in configuration.options:
        configuration.options["teacher_model"] = inputs.MODELS[configuration.model](
            tmp_path / "teacher", seed=1
        )
    stock, ours = (steps(kind, configuration, model, dataset, tmp_path, ranks) for kind in ("Stock", "Ours"))
    if "fsdp" in configuration.options:
        assert gains(tmp_path / "Ours")["shared_prefix"]["state"] == "on"
    assert len(stock) == len(ours) == 3
    assert all(row["grad_norm"] > 0 for row in stock)
    for one, other in zip(stock, ours, strict=True):
        assert {*one} >= {"loss", "grad_norm", "reward"}
        for figure in FIGURES:
            if figure in one or figure in other:
                assert other[figure] == pytest.approx(one[figure], rel=1e-4, abs=1e-5), figure
