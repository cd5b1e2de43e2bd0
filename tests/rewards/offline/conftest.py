"""Runs `swift-grpo-ext score` in this process."""

import json

import pytest

from swift_grpo_ext.rewards.offline import command
from tests.rewards.offline.rows import ROWS_OF_THREE, lines


@pytest.fixture
def data(tmp_path):
    return lines(tmp_path / "data.jsonl", ROWS_OF_THREE)


@pytest.fixture
def run(tmp_path):
    """Score; returns whether all is well, and the written records."""

    def run(data, *rewards, **options):
        well = command.run(data, rewards, output=tmp_path / "out", **options)
        written = (tmp_path / "out" / "scores.jsonl").read_text().splitlines()
        return well, [json.loads(line) for line in written]

    return run
