"""One test for all patches: fails without, passes with, comes off again, and refuses another target."""

import dataclasses

import pytest

from swift_grpo_ext.compat import registry
from swift_grpo_ext.compat.patch import State, Target


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
        registry.revert(self.patch.id)
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
            was.target.restore()
        proof = Proof(patch)
        made.append((proof, was))
        return proof

    yield start
    for proof, was in made:
        if proof.patch.id in registry._outcomes:
            proof.off()
        if was is not None:
            registry.settle(registry.patches()[proof.patch.id])
