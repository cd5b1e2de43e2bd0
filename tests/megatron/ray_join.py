"""Where Ray's pipeline has another trainer, or ms-swift's worker has lost a method, nothing of ours takes its place: `python ray_join.py`."""

import logging

import cpu_as_cuda  # noqa: F401  (before anything else imports torch)
from swift.ray.megatron import megatron_worker, pipeline
from swift.utils import get_logger

from swift_grpo_ext.megatron import ray_driver
from swift_grpo_ext.megatron.ray_worker import Worker

THEIRS = megatron_worker.MegatronWorker
LOST = "_compute_logps"


def joined(said):
    """What is registered, and which worker, once we have tried; what was said of it."""
    said.clear()
    ray_driver.join(pipeline)
    return pipeline._TRAINER_REGISTRY["grpo"], megatron_worker.MegatronWorker


def main():
    said = []
    get_logger().addFilter(lambda record: said.append(record.getMessage()) or True)
    get_logger().setLevel(logging.INFO)
    own = dict(pipeline._TRAINER_REGISTRY["grpo"])

    pipeline.register_ray_trainer("grpo", trainer="mine.Trainer", loss="mine.Loss")
    assert joined(said) == ({"trainer": "mine.Trainer", "loss": "mine.Loss"}, THEIRS)
    assert said == ["swift-grpo-ext: Ray trains with mine.Trainer: prompts are not shared"]

    pipeline.register_ray_trainer("grpo", **own)
    method = getattr(THEIRS, LOST)
    delattr(THEIRS, LOST)
    assert joined(said) == (own, THEIRS)
    assert len(said) == 1
    assert said[0].startswith("swift-grpo-ext: Ray's workers share no prompts: ")
    assert f"has no {LOST}, so what replaces it would never run" in said[0]
    assert "\n" not in said[0]

    setattr(THEIRS, LOST, method)
    entry, worker = joined(said)
    assert entry == {"trainer": "swift_grpo_ext.megatron.ray_driver.Driver", "loss": None}
    assert (worker, said) == (Worker, [])


if __name__ == "__main__":
    main()
