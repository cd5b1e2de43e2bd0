"""ms-swift's Ray trainer on Megatron with an engine: vLLM on the CPU samples, and is handed the weights of each update.

Weights go through shared memory, as on an NPU. Not run: CUDA's way, engines on GPUs of their own, which get weights by
NCCL, sleep, and offloading.
"""

import json

import pytest

from swift_grpo_ext.plugin_files import plugin_file
from tests.conftest import built_once
from tests.megatron.runs import Engine, train_with_ray
from tests.megatron.test_trainer import shares
from tests.trainer.test_engine_vision import sharp

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
ALIKE = 1e-4  # between log-probs of vLLM and of Megatron; 1e-5 was seen
SAMPLED = {"use_vllm": True, "temperature": 1.0, "top_p": 1.0, "top_k": -1}


@pytest.fixture(scope="module")
def apart(python_with_ray, engine_packages, shared_folder, four_rows, tmp_path_factory):
    """A function of `Engine.forgets`, and of plugin files: for each step how far log-probs of engine and policy are
    apart at most, and the run.
    """
    model = built_once(
        shared_folder / "sharp_qwen_stock", lambda folder: sharp(folder, factor=10, stock_vocabulary=True)
    )

    def steps(forgets, *plugins):
        folder = tmp_path_factory.mktemp("engine")
        engine = Engine(engine_packages, forgets)
        arguments = {**SAMPLED, "external_plugins": list(plugins) or None}
        run = train_with_ray(python_with_ray, model, four_rows, folder, engine=engine, **arguments)
        found = [0.0] * len(run.logs)
        for batch in run.ranks[0]["micro_batches"]:
            distance = (batch["policy"] - batch["rollout"])[batch["mask"]].abs().max().item()
            found[batch["step"]] = max(found[batch["step"]], distance)
        return found, run

    return steps


def test_the_engine_samples_by_the_weights_of_each_step(apart):
    """The vision tower is trained as well, and each step has the same images."""
    steps, _ = apart(forgets=True)
    assert len(steps) == 3
    assert max(steps) <= ALIKE


def test_our_workers_share_prompts_of_what_it_samples(apart):
    """Images that come again are those of the tower of each step; one of our parts compares the engine with the policy."""
    steps, run = apart(True, plugin_file())
    assert run.mode["trainer"] == "WorkerTrainer"
    assert len(steps) == 3
    assert max(steps) <= ALIKE
    facts = json.loads((run.folder / "gains.json").read_text())
    on = {name for name, gain in facts["gains"].items() if gain["state"] == "on"}
    assert on == {"shared_prefix", "completion_logits", "skip_old_logps"}
    assert shares(run)
    assert facts["watching"]["engine_check"]["state"] == "on"
    assert "engine check: log-probs not compared" not in run.output


def test_f32_features_of_images_are_kept_over_a_sync(apart):
    """Of images that come again rollouts see what an older tower saw."""
    (first, *later), _ = apart(forgets=False)
    assert first <= ALIKE
    assert min(later) > 0.1
