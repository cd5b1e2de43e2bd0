"""A prompt and its images are handed to vLLM once for the completions of a group, and nothing else changes."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.testing.run import free_port
from tests.engines.conftest import HERE, TRAINER_PLUGINS, grpo_with_vllm, rollout_server

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

ONE_BY_ONE = {"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefill"}
SIZES = {"num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6}
# The most likely token, which does not depend on what else the engine computes.
RUN = {
    **SIZES,
    "max_steps": 2,
    "learning_rate": 1e-2,
    "external_plugins": [*TRAINER_PLUGINS, HERE / "asked.py"],
}


def rows(folder, table):
    return testing.read_jsonl(folder / f"{table}.jsonl")


def trained(model, digits, folder, variables, **chosen):
    folder.mkdir()
    return grpo_with_vllm(model, digits, folder, variables, **{**RUN, **chosen})


def test_colocate(tiny_qwen_stock, digits, tmp_path):
    options = {"vllm_mode": "colocate"}  # sampled, with the seeds of single requests
    once = trained(tiny_qwen_stock, digits, tmp_path / "once", {}, **options)
    each = trained(tiny_qwen_stock, digits, tmp_path / "each", ONE_BY_ONE, **options)
    assert [(row["requests"], row["n"]) for row in rows(once.folder, "asked")] == [(2, 4), (2, 4)]
    assert [(row["requests"], row["n"]) for row in rows(each.folder, "asked")] == [(8, 1), (8, 1)]
    found, expected = rows(once.folder, "answers"), rows(each.folder, "answers")
    assert found == expected
    assert len({tuple(row["tokens"]) for row in found}) == len(found) == 16
    assert [step["grad_norm"] for step in once.steps] == pytest.approx(
        [step["grad_norm"] for step in each.steps], rel=1e-4, abs=1e-6
    )


def test_sampled_completions_of_a_group_differ(tiny_qwen_stock, digits, tmp_path):
    run = trained(tiny_qwen_stock, digits, tmp_path / "run", {}, vllm_mode="colocate", max_steps=1)
    answers = [tuple(row["tokens"]) for row in rows(run.folder, "answers")]
    assert len(set(answers)) == len(answers) == 8
    assert [row["used"] for row in rows(run.folder, "answers")] == [len(tokens) for tokens in answers]


def test_server(tiny_qwen_stock, digits, tmp_path):
    """Bytes over HTTP: of a request with an image there is one for each group."""
    with rollout_server(tiny_qwen_stock, tmp_path, {}) as mode:
        once = trained(tiny_qwen_stock, digits, tmp_path / "once", {}, **mode, top_k=1, max_steps=1)
        mode["vllm_server_group_port"] = free_port()
        each = trained(tiny_qwen_stock, digits, tmp_path / "each", ONE_BY_ONE, **mode, top_k=1, max_steps=1)
    (sent,), (before,) = rows(once.folder, "sent"), rows(each.folder, "sent")
    assert (sent["requests"], sent["n"], before["requests"], before["n"]) == (2, 4, 8, 1)
    assert (
        sent["bytes"] < before["bytes"] / 2
    )  # of tiny images; what is said once for all requests is not less
    assert rows(once.folder, "answers") == rows(each.folder, "answers")
