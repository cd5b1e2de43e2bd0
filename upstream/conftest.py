"""Short GRPO runs of the host alone: nothing of swift-grpo-ext is registered.

Its testing room builds the tiny checkpoints, the data and the command lines, and that is all.
"""

import os

from swift_grpo_ext.testing import cpu_environment

os.environ.update(cpu_environment())  # before anything imports torch

import pytest

from swift_grpo_ext import registration, testing
from tests.conftest import shared_folder  # noqa: F401  (of those that follow)
from tests.megatron.conftest import four_rows, mixed_rows, python, reference, rows_for, tiny  # noqa: F401


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory):
    """A tiny Qwen2.5-VL with the published placeholder ids."""
    return testing.tiny_qwen2_5_vl(tmp_path_factory.mktemp("models") / "qwen", stock_vocabulary=True)


@pytest.fixture(scope="session")
def tiny_ovis(tmp_path_factory):
    """A tiny Ovis2 of transformers' own class."""
    return testing.tiny_ovis2(tmp_path_factory.mktemp("models") / "ovis")


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Sixteen handwritten digits."""
    return testing.digits_dataset(tmp_path_factory.mktemp("digits"), limit=32)


@pytest.fixture
def reward(monkeypatch):
    """Register a reward function, class or not, under the name that is returned."""
    from swift.rewards import orms

    def register(function, name="under_test"):
        # ms-swift builds what stands in its table: a class, or here something that gives the function.
        made = function if isinstance(function, type) else lambda args=None: function
        monkeypatch.setitem(orms, name, made)
        return name

    return register


@pytest.fixture
def grpo(tiny_qwen, digits, tmp_path):
    """Run the host's GRPO in this process; returns the steps that it logged."""

    def run(model=tiny_qwen, dataset=digits.train, **overrides):
        output = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        arguments = {"external_plugins": None, "beta": 0, "seed": 1, "reward_funcs": "format", **overrides}
        testing.run_in_process("rlhf", testing.grpo_arguments(model, dataset, output, **arguments))
        assert not registration._registered, "a part of ours is at work"
        run.output = output
        return [row for row in testing.read_logging(output) if "loss" in row]

    return run
