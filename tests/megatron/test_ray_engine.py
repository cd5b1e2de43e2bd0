"""ms-swift's Ray trainer on Megatron with an engine: vLLM on the CPU samples, and is handed the weights of each update.

Weights go through shared memory, as on an NPU. Not run: CUDA's way, engines on GPUs of their own, which get weights by
NCCL, sleep, and offloading.
"""

import pytest

from tests.conftest import built_once
from tests.megatron.runs import Engine, train_with_ray
from tests.trainer.test_engine_vision import sharp

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
ALIKE = 1e-4  # between log-probs of vLLM and of Megatron; 1e-5 was seen
SAMPLED = {"use_vllm": True, "temperature": 1.0, "top_p": 1.0, "top_k": -1}


@pytest.fixture(scope="module")
def apart(python_with_ray, engine_packages, shared_folder, four_rows, tmp_path_factory):
    """A function of `Engine.forgets`: for each step how far log-probs of engine and policy are apart at most."""
    model = built_once(
        shared_folder / "sharp_qwen_stock", lambda folder: sharp(folder, factor=10, stock_vocabulary=True)
    )

    def steps(forgets):
        folder = tmp_path_factory.mktemp("engine")
        engine = Engine(engine_packages, forgets)
        run = train_with_ray(python_with_ray, model, four_rows, folder, engine=engine, **SAMPLED)
        found = [0.0] * len(run.logs)
        for batch in run.ranks[0]["micro_batches"]:
            distance = (batch["policy"] - batch["rollout"])[batch["mask"]].abs().max().item()
            found[batch["step"]] = max(found[batch["step"]], distance)
        return found

    return steps


def test_the_engine_samples_by_the_weights_of_each_step(apart):
    """The vision tower is trained as well, and each step has the same images."""
    steps = apart(forgets=True)
    assert len(steps) == 3
    assert max(steps) <= ALIKE


def test_f32_features_of_images_are_kept_over_a_sync(apart):
    """Of images that come again rollouts see what an older tower saw."""
    first, *later = apart(forgets=False)
    assert first <= ALIKE
    assert min(later) > 0.1
