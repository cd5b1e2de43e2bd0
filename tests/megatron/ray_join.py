"""Where Ray's pipeline has another trainer, or ms-swift's worker has lost a method, nothing of ours takes its place: `python ray_join.py`."""

import io
import logging
from collections import defaultdict
from contextlib import redirect_stderr
from types import SimpleNamespace

import cpu_as_cuda  # noqa: F401  (before anything else imports torch)
import torch
from swift.ray.megatron import megatron_worker, pipeline
from swift.utils import get_logger

from swift_grpo_ext import megatron
from swift_grpo_ext.megatron import ray_driver
from swift_grpo_ext.megatron.ray_worker import Worker

THEIRS = megatron_worker.MegatronWorker
LOST = "_compute_logps"


def joined(said):
    """What is registered, and which worker, once we have tried; what was said of it."""
    said.clear()
    with redirect_stderr(io.StringIO()) as printed:
        megatron._join("ray_driver", pipeline)
    said += printed.getvalue().splitlines()
    return pipeline._TRAINER_REGISTRY["grpo"], megatron_worker.MegatronWorker


def main():
    said = []
    get_logger().addFilter(lambda record: said.append(record.getMessage()) or True)
    get_logger().setLevel(logging.INFO)
    own = dict(pipeline._TRAINER_REGISTRY["grpo"])

    pipeline.register_ray_trainer("grpo", trainer="mine.Trainer", loss="mine.Loss")
    assert joined(said) == ({"trainer": "mine.Trainer", "loss": "mine.Loss"}, THEIRS)
    assert len(said) == 1
    assert said[0].startswith("swift-grpo-ext: Ray trains with {'trainer': 'mine.Trainer', ")

    pipeline.register_ray_trainer("grpo", **own)
    method = getattr(THEIRS, LOST)
    delattr(THEIRS, LOST)
    assert joined(said) == (own, THEIRS)
    assert len(said) == 1
    assert said[0].startswith("swift-grpo-ext: the part megatron is off: ")
    assert f"has no {LOST}, so what replaces it would never run" in said[0]

    setattr(THEIRS, LOST, method)
    entry, worker = joined(said)
    assert entry == {"trainer": "swift_grpo_ext.megatron.ray_driver.Driver", "loss": None}
    assert (worker, said) == (Worker, [])

    rewards_that_are_equal_are_not_compared(said)


def rewards_that_are_equal_are_not_compared(said):
    """Eight of 0.1 deviate by rounding: ms-swift's driver takes that for a difference."""
    driver = ray_driver.Driver.__new__(ray_driver.Driver)
    driver.num_generations, driver.max_resample_times, driver.kl_in_reward, driver.beta = 8, 0, False, 0.0
    driver.advantage_estimator, driver.scale_rewards, driver.loss_type = "grpo", "gdpo", "grpo"
    driver.reward_weights, driver.reward_func_names = torch.ones(1), ["one"]
    driver._metrics = {"train": defaultdict(list)}
    driver.scoring = SimpleNamespace(baselines=ray_driver.WholeGroups(driver))
    samples, rewards = list("abcdefgh"), torch.full((8, 1), 0.1)
    none_found = "only 0/8 std>0 samples"

    said.clear()
    stock = ray_driver.GRPOTrainer
    assert stock._dynamic_sampling(driver, samples, rewards)[0] == samples
    assert stock.compute_advantages(driver, rewards)[0].abs().max() > 0.1
    assert not any(none_found in line for line in said)

    assert driver._dynamic_sampling(samples, rewards)[0] == samples
    assert driver.compute_advantages(rewards)[0].tolist() == [0.0] * 8
    assert any(none_found in line for line in said)


if __name__ == "__main__":
    main()
