"""Runs that must not start: each message says what, why and the exact fix."""

import pytest

from swift_grpo_ext.compat.refusals import REFUSALS, RefusableRun, refuse
from swift_grpo_ext.errors import RefusedError

ZERO2_OFFLOAD = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
OLD = {"deepspeed": "0.18.9"}
NEW = {"deepspeed": "0.19.8"}

DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"
SWIFT = "https://github.com/modelscope/ms-swift"

# For each rule a run, and of its message: what happens, why, the exact fix, the link.
REFUSED = {
    "A9": (
        RefusableRun({"vllm_mode": "colocate", "vllm_tensor_parallel_size": 3}, world_size=8),
        "8 ranks cannot be cut into tensor-parallel groups of 3",
        "[vllm_tensor_parallel_size 3, NPROC_PER_NODE x NNODES 8]",
        "-> --vllm_tensor_parallel_size with a divisor of 8",
        "(https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html)",
    ),
    "B1": (
        RefusableRun({"gradient_accumulation_steps": 32}, ZERO2_OFFLOAD, versions=OLD),
        "of 32 micro-batches per step only the first and the last would count",
        "[ZeRO-2 with offload_optimizer and gradient_accumulation_steps 32]",
        '-> pip install "deepspeed>=0.19.2", or --deepspeed zero2 or zero3_offload',
        f"({DEEPSPEED}/issues/6550)",
    ),
    "F16": (
        RefusableRun({"loss_type": "real", "per_device_train_batch_size": 6, "num_generations": 4}),
        "micro-batches of 6 hold parts of groups of 4",
        "[loss_type real, per_device_train_batch_size 6]",
        "-> --per_device_train_batch_size with a multiple of 4",
        "(https://arxiv.org/abs/2602.05630)",
    ),
    "F18": (
        RefusableRun({"streaming": True, "num_generations": 4}),
        "a group of a stream would hold different prompts",
        "[--streaming true]",
        "-> --streaming false",
        f"({SWIFT}/blob/main/swift/rlhf_trainers/grpo_trainer.py)",
    ),
    "F22": (
        RefusableRun({"gym_env": "maze", "reward_funcs": ["format"], "use_vllm": False}),
        "the rewards of a gym environment are not read",
        "[gym_env maze, use_vllm false]",
        "-> --use_vllm true, or reward functions instead of --gym_env",
        f"({SWIFT}/blob/main/swift/rlhf_trainers/rollout_mixin.py)",
    ),
}
RUNS = {
    "nothing set": RefusableRun({}),
    "environment beside vLLM": RefusableRun({"gym_env": "maze", "use_vllm": True}),
    "dividing": RefusableRun({"vllm_mode": "colocate", "vllm_tensor_parallel_size": 4}, world_size=8),
    "server": RefusableRun({"vllm_mode": "server", "vllm_tensor_parallel_size": 3}, world_size=8),
    "offload, new": RefusableRun({"gradient_accumulation_steps": 32}, ZERO2_OFFLOAD, versions=NEW),
    "offload, no accumulation": RefusableRun({"gradient_accumulation_steps": 1}, ZERO2_OFFLOAD, versions=OLD),
    "zero2 without offload": RefusableRun(
        {"gradient_accumulation_steps": 32},
        {"stage": 2, "offload_optimizer": {"device": "none"}},
        versions=OLD,
    ),
    "offload, healed": RefusableRun(
        {"gradient_accumulation_steps": 32},
        ZERO2_OFFLOAD,
        healed=frozenset({"B1-zero2-offload"}),
        versions=OLD,
    ),
    "real, whole groups": RefusableRun(
        {"loss_type": "real", "per_device_train_batch_size": 8, "num_generations": 4}
    ),
    "another loss, parts of groups": RefusableRun(
        {"loss_type": "dapo", "per_device_train_batch_size": 2, "num_generations": 4}
    ),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refused_with_what_why_the_mend_and_a_link(rule):
    run, what, why, fix, link = REFUSED[rule]
    with pytest.raises(RefusedError) as caught:
        refuse(run)
    message = str(caught.value)
    assert message.startswith(f"swift-grpo-ext: {rule}: ")
    assert what in message
    assert why in message
    assert fix in message
    assert link in message
    assert "\n" not in message


def test_every_rule_is_tested():
    assert set(REFUSALS) == set(REFUSED)


@pytest.mark.parametrize("name", RUNS)
def test_no_false_alarm(name):
    refuse(RUNS[name])
