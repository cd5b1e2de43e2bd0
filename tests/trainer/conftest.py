"""What several tests of the trainer look at."""

import pytest

from swift_grpo_ext.trainer import one_pass


@pytest.fixture
def packs(monkeypatch):
    """The packs that models are given from here on, in order."""
    given = []
    whole = one_pass.packed_scores

    def scores(model, head, inputs, pack, **options):
        given.append(pack)
        return whole(model, head, inputs, pack, **options)

    monkeypatch.setattr(one_pass, "packed_scores", scores)
    return given
