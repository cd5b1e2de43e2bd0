"""Models that the planner's tests plan for, and the folder in which launch scripts are read."""

import json
import os
import subprocess

import pytest

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules import refused
from swift_grpo_ext.doctor.plan.models import require_config
from swift_grpo_ext.doctor.plan.shape import shape_of
from tests.forked import forked_workers


@pytest.fixture(autouse=True)
def _children_that_start_in_a_moment():
    with forked_workers():
        yield


@pytest.fixture(scope="session")
def big():
    return shape_of(require_config("Qwen/Qwen2.5-VL-72B-Instruct"))


@pytest.fixture(scope="session")
def seven():
    return shape_of(require_config("Qwen2.5-VL-7B"))


@pytest.fixture
def launch_folder(tmp_path, monkeypatch):
    """An empty current folder of a machine without a GPU, a cluster or settings of ours."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("SLURM", "SWIFT_GRPO_EXT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(inputs, "memory_of_a_gpu", lambda: 0)


class Child:
    """A child process of check that answers every test of this process: ms-swift is imported once, not each time."""

    def __init__(self):
        self.process = None

    def ask(self, questions):
        if self.process is None:
            self.process = subprocess.Popen(
                host_table.CHILD,
                env=host_table.child_environ(),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        answers = []
        for question in questions:
            print(json.dumps(question), file=self.process.stdin, flush=True)
            answers.append(json.loads(self.process.stdout.readline()))
        return answers


@pytest.fixture(scope="session")
def child():
    child = Child()
    yield child
    if child.process:
        child.process.kill()
        child.process.communicate()


@pytest.fixture(autouse=True)
def _one_child(child, monkeypatch):
    monkeypatch.setattr(host_table, "ask", child.ask)


@pytest.fixture
def refusals():
    """What ms-swift refuses of a verdict's runs, as the command says it behind the verdict."""

    def said(verdict):
        return refused.refusals(verdict.runs)

    return said
