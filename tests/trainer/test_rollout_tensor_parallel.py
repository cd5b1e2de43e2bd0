"""Ranks of a tensor-parallel group compare their requests before a stand-in engine generates."""

import copy
import sys
from types import SimpleNamespace

import pytest
import torch.distributed as dist
from PIL import Image
from swift.infer_engine import RequestConfig
from swift.infer_engine.protocol import RolloutInferRequest

from swift_grpo_ext.errors import RolloutError
from swift_grpo_ext.trainer.rollout import Rollout, request_digest
from tests.forked import fork_ranks


def requests(text="Which digit?", image="a.png"):
    return [RolloutInferRequest(messages=[{"role": "user", "content": text}], images=[image], uuid="1")]


class Engine:
    """Stands in for the host's trainer with its engine: it would hang on requests that differ."""

    vllm_mode = "colocate"
    vllm_tensor_parallel_size = 2

    def _engine_infer(self, infer_requests, request_config=None, **kwargs):
        dist.barrier(group=self.tp_group)
        return [f"answer to {request.messages[0]['content']}" for request in infer_requests]


class Trainer(Engine):
    def _engine_infer(self, infer_requests, request_config=None, **kwargs):
        Rollout(self).agree(infer_requests, request_config)
        return super()._engine_infer(infer_requests, request_config, **kwargs)


def rank_main(differ):
    dist.init_process_group("gloo")
    trainer = Trainer()
    trainer.tp_group = dist.group.WORLD
    text = "Which digit is it?" if differ and dist.get_rank() else "Which digit?"
    try:
        (result,) = trainer._engine_infer(requests(text), RequestConfig(max_tokens=4, seed=3))
    except RolloutError as error:
        result = str(error)
    print(result)
    dist.destroy_process_group()


@pytest.mark.two_ranks
@pytest.mark.parametrize("differ", [False, True])
def test_two_ranks(differ):
    ended = fork_ranks(__file__, ["differ"] if differ else [], timeout=60)
    results = [written.strip() for written in ended.written]
    assert ended.codes == [0, 0]
    if differ:
        assert results[0] == results[1]
        assert "hold different requests: [[0], [1]]" in results[0]
        assert "where their collectives would hang" in results[0]
        assert "-> give all ranks the same dataset files" in results[0]
        assert "or --vllm_tensor_parallel_size 1 (https://docs.vllm.ai/" in results[0]
        assert "\n" not in results[0]
    else:
        assert results == ["answer to Which digit?"] * 2


def test_the_digest_is_of_the_content():
    config = RequestConfig(max_tokens=4, seed=3)
    digest = request_digest(requests(), config)
    assert request_digest(copy.deepcopy(requests()), config) == digest
    other_id = requests()
    other_id[0].uuid = "2"
    assert request_digest(other_id, config) == digest
    for other in (
        request_digest(requests("Which letter?"), config),
        request_digest(requests(image="b.png"), config),
        request_digest(requests() * 2, config),
        request_digest(requests(), RequestConfig(max_tokens=4, seed=4)),
    ):
        assert other != digest


def test_images_count_by_their_pixels():
    red, blue = (Image.new("RGB", (2, 2), colour) for colour in ("red", "blue"))
    assert request_digest(requests(image=red)) == request_digest(requests(image=red.copy()))
    assert request_digest(requests(image=red)) != request_digest(requests(image=blue))
    assert request_digest(requests(image=b"a")) != request_digest(requests(image=b"b"))


def test_without_tensor_parallel_nothing_is_compared():
    trainer = Trainer()
    trainer.vllm_tensor_parallel_size = 1
    with pytest.raises(AttributeError, match="tp_group"):  # straight to the engine
        trainer._engine_infer(requests())


def seeds_of(rank, run_seed=42, size=2, steps=(0, 0, 1, 2), of_ms_swift=False):
    """Seeds of the generations of one rank, at these optimizer steps."""
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    trainer = type("Host", (), {"_get_request_config": RolloutTrainerMixin._get_request_config})()
    rollout = Rollout(trainer)
    trainer.vllm_mode, trainer.vllm_tensor_parallel_size = "colocate", size
    trainer.request_config = RequestConfig(max_tokens=4)
    trainer.args = SimpleNamespace(
        seed=run_seed,
        vllm_mode="colocate",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=1,
    )
    trainer.model = SimpleNamespace(training=True)
    trainer.accelerator = SimpleNamespace(process_index=rank)
    trainer.state = SimpleNamespace(global_step=0)
    seeds = []
    for trainer.state.global_step in steps:
        config = trainer._get_request_config()
        seeds.append(config.seed if of_ms_swift else rollout.seeded(config).seed)
    return seeds


def test_each_generation_of_a_group_has_its_own_seed():
    assert seeds_of(0, of_ms_swift=True) == [0] * 4 == seeds_of(0, run_seed=43, of_ms_swift=True)
    assert seeds_of(2, of_ms_swift=True) == [8] * 4, "of the second group, in every step"
    once = seeds_of(0)
    assert once == seeds_of(0) == seeds_of(1), "the ranks of a group agree, and a seed repeats a run"
    every = [*once, *seeds_of(2), *seeds_of(0, run_seed=43)]
    assert len(set(every)) == len(every) == 12
    assert seeds_of(0, size=1) == [None] * 4


if __name__ == "__main__":
    rank_main("differ" in sys.argv)
