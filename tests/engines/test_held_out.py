"""Held-out rewards with rollouts by vLLM, colocated and on a server: what transformers' engine would score."""

import json
from statistics import fmean

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.watch.held_out import read_evaluations
from tests.engines.conftest import grpo_with_vllm, rollout_server

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]

RUN = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
RUN |= {"per_device_eval_batch_size": 4, "max_completion_length": 12, "learning_rate": 1e-2}


@pytest.fixture
def held_out(digits, tmp_path):
    """Seven rows, which are no whole number of batches."""
    path = tmp_path / "held_out.jsonl"
    path.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:7]))
    return path


def folder_of(run):
    return testing.newest_version(run.folder / "output")


def scores(run):
    """Of the rows of each evaluation, by its step."""
    return {one.step: one.scores["reward"] for one in read_evaluations(folder_of(run))}


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_each_row_is_answered_greedily_by_the_weights_of_its_step(
    mode, sharp_qwen, digits, held_out, tmp_path
):
    variables: dict[str, str] = {}
    options = {**RUN, "val_dataset": held_out}
    if mode == "colocate":
        run = grpo_with_vllm(sharp_qwen, digits, tmp_path, variables, vllm_mode="colocate", **options)
    else:
        with rollout_server(sharp_qwen, tmp_path, {}) as server:
            run = grpo_with_vllm(sharp_qwen, digits, tmp_path, variables, **server, **options)
    by_vllm = scores(run)
    assert {step: len(rows) for step, rows in by_vllm.items()} == {1: 7, 2: 7}
    assert by_vllm[1] != by_vllm[2], "both are answers of the same weights"
    newest = folder_of(run) / "checkpoint-2"
    best = json.loads((newest / "trainer_state.json").read_text())["best_metric"]
    assert best == pytest.approx(max(map(fmean, by_vllm.values())), abs=1e-6)
    options |= {"max_steps": 1, "learning_rate": 0, "use_vllm": False}
    (tmp_path / "again").mkdir()
    again = grpo_with_vllm(newest, digits, tmp_path / "again", variables, **options)
    assert by_vllm[2] == pytest.approx(scores(again)[1], abs=1e-6), "transformers answers otherwise"
