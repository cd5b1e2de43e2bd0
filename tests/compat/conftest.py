"""One test for all patches: fails without, passes with, comes off again, and refuses another target.

And what runs that show a patch have in common: questions, runs without it, the prompts of their groups.
"""

import dataclasses
import json

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat import registry
from swift_grpo_ext.compat.patch import State, Target
from tests.compat.reverting import restore, revert


class Proof:
    """Drives one patch through its states in this process."""

    def __init__(self, patch):
        self.patch = patch
        self.original = Target(patch.target).get()

    def on(self):
        outcome = registry.apply(self.patch)
        assert outcome.state is State.APPLIED, outcome.reason
        registry._outcomes[self.patch.id] = outcome

    def off(self):
        revert(self.patch.id)
        assert Target(self.patch.target).get() is self.original

    def drift(self):
        outcome = registry.apply(dataclasses.replace(self.patch, fingerprint="something, else"))
        assert outcome.state is State.REFUSED
        assert outcome.reason.startswith("DRIFT")
        assert Target(self.patch.target).get() is self.original


@pytest.fixture
def prove():
    """`prove(PATCH)`: the patch is off at first, and afterwards as it was before the test."""
    made = []

    def start(patch):
        was = registry._outcomes.pop(patch.id, None)
        if was is not None and was.target is not None:
            restore(was.target)
        proof = Proof(patch)
        made.append((proof, was))
        return proof

    yield start
    for proof, was in made:
        if proof.patch.id in registry._outcomes:
            proof.off()
        if was is not None:
            registry.settle(registry.patches()[proof.patch.id])


@pytest.fixture
def stock(request):
    """Runs go without the patch that the test's module names ``PATCH``."""
    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    revert(request.module.PATCH)
    yield
    registry.settle(registry.patches()[request.module.PATCH])


@pytest.fixture
def stock_trainer(monkeypatch):
    """Runs have ms-swift's own trainer."""
    from swift.trainers.trainer_factory import TrainerFactory

    swift_grpo_ext.register()
    monkeypatch.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", "swift.rlhf_trainers.GRPOTrainer")
    monkeypatch.setitem(TrainerFactory.TRAINING_ARGS_MAPPING, "grpo", "swift.rlhf_trainers.GRPOConfig")


@pytest.fixture
def asking(tmp_path):
    """`asking(contents)`: path of a dataset with one question each."""

    def write(contents):
        path = tmp_path / "questions.jsonl"
        rows = [{"messages": [{"role": "user", "content": content}]} for content in contents]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def asked():
    """`asked(output)`: the prompts of each generation batch, cut into groups of four."""

    def read(output):
        steps = {}
        for row in testing.read_completions(output):
            steps.setdefault(int(row["step"]), []).append(row["prompt"])
        return [
            [prompts[start : start + 4] for start in range(0, len(prompts), 4)]
            for _, prompts in sorted(steps.items())
        ]

    return read
