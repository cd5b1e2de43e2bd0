"""Runs that must not start: each message says what, why and the exact fix."""

import pytest

from swift_grpo_ext.compat.refusals import RULES, RefusableRun, refusals, refuse
from swift_grpo_ext.errors import RefusedError

ZERO2_OFFLOAD = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
ZERO3 = {"zero_optimization": {"stage": 3}}
OLD = {"deepspeed": "0.18.9"}
NEW = {"deepspeed": "0.19.8"}

DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"
SWIFT = "https://github.com/modelscope/ms-swift"

# For each rule a run, and of its message: what happens, why, the exact fix, the link.
REFUSED = {
    "A4": (
        RefusableRun({"num_generations": 1, "reward_funcs": ["format"]}),
        "every advantage is 0",
        "[num_generations 1]",
        "-> --num_generations 2 or more, or no reward functions",
        "(https://arxiv.org/abs/2402.03300)",
    ),
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
    "A3": (
        RefusableRun({"use_vllm": False}, ZERO3, versions=OLD),
        "ZeRO-3 without vLLM stops at the second rollout with 'pop from an empty deque'",
        "[ZeRO-3 and use_vllm false]",
        '-> pip install "deepspeed>=0.19.2", or --ds3_gather_for_generation false',
        f"({DEEPSPEED}/pull/8043)",
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
    "F28": (
        RefusableRun({"fsdp": "fsdp2", "use_cpu": True}),
        "on a CPU accelerate passes over --fsdp",
        "[fsdp fsdp2, no GPU in use]",
        "-> no --fsdp on a CPU (the ranks run as DDP), or a GPU",
        "(https://github.com/huggingface/accelerate/blob/",
    ),
    "F37": (
        RefusableRun({"chord_sft_dataset": ["rows.jsonl"], "chord_mu_peak": 0.5, "chord_mu_valley": 0.1}),
        "CHORD without a schedule of its weight mu ends in the first step",
        "[chord_sft_dataset without chord_mu_warmup_steps, chord_mu_decay_steps]",
        "-> --chord_mu_warmup_steps 50",
        f"({SWIFT}/blob/v4.6.0/swift/rlhf_trainers/utils.py)",
    ),
    "F48": (
        RefusableRun({"tuner_type": "lora_llm", "ref_adapters": ["checkpoint"]}),
        "takes no second adapter",
        "[ref_adapters, tuner_type lora_llm]",
        "-> no --ref_adapters: with such a tuner the reference is the policy as it starts",
        f"({SWIFT}/issues/8453)",
    ),
}
RUNS = {
    "adapters of a reference": RefusableRun({"tuner_type": "lora", "ref_adapters": ["checkpoint"]}),
    "nothing set": RefusableRun({}),
    "sharded on GPUs": RefusableRun({"fsdp": "fsdp2", "use_cpu": False}),
    "sharded where nothing is known of GPUs": RefusableRun({"fsdp": "fsdp2"}),
    "CHORD with its schedule": RefusableRun(
        {"chord_sft_dataset": ["rows.jsonl"]}
        | dict.fromkeys(
            ("chord_mu_warmup_steps", "chord_mu_decay_steps", "chord_mu_peak", "chord_mu_valley"), 0
        )
    ),
    "teacher alone": RefusableRun({"num_generations": 1}),
    "environment beside vLLM": RefusableRun({"gym_env": "maze", "use_vllm": True}),
    "two generations": RefusableRun({"num_generations": 2, "reward_funcs": ["format"]}),
    "dividing": RefusableRun({"vllm_mode": "colocate", "vllm_tensor_parallel_size": 4}, world_size=8),
    "server": RefusableRun({"vllm_mode": "server", "vllm_tensor_parallel_size": 3}, world_size=8),
    "offload, new": RefusableRun({"gradient_accumulation_steps": 32}, ZERO2_OFFLOAD, versions=NEW),
    "offload, no accumulation": RefusableRun({"gradient_accumulation_steps": 1}, ZERO2_OFFLOAD, versions=OLD),
    "zero2 without offload": RefusableRun(
        {"gradient_accumulation_steps": 32},
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}},
        versions=OLD,
    ),
    "offload, healed": RefusableRun(
        {"gradient_accumulation_steps": 32},
        ZERO2_OFFLOAD,
        healed=frozenset({"B1-zero2-offload"}),
        versions=OLD,
    ),
    "zero3, new": RefusableRun({"use_vllm": False}, ZERO3, versions=NEW),
    "zero3 with vLLM": RefusableRun({"use_vllm": True}, ZERO3, versions=OLD),
    "zero3, layer by layer": RefusableRun({"ds3_gather_for_generation": False}, ZERO3, versions=OLD),
    "zero3, healed": RefusableRun({}, ZERO3, healed=frozenset({"A3-zero3-trace"}), versions=OLD),
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
    assert {rule.id for rule in RULES} == set(REFUSED)


@pytest.mark.parametrize("name", RUNS)
def test_no_false_alarm(name):
    assert list(refusals(RUNS[name])) == []
