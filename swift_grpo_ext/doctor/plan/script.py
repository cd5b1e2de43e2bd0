"""Writes the launch script of a setting, for one node or several."""

import json
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.judge import MOMENTS
from swift_grpo_ext.doctor.plan.search import Plan
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.group.gpu_memory import GIB


def write(
    folder: Path, model: str, shape: ModelShape, work: Work, plan: Plan, machine: Machine
) -> list[Path]:
    """Write ``train.sh``, the DeepSpeed JSON, and with a rollout server ``rollout.sh`` into a folder.

    Raises:
        SwiftGrpoExtError: The folder cannot be written.
    """
    setting = plan.setting
    files = {"train.sh": train_script(model, shape, work, plan, machine)}
    if shape.has_experts and machine.gpus > 1:
        files["train_megatron.sh"] = megatron_script(model, shape, work, setting, machine)
    if setting.rollout == "server":
        files["rollout.sh"] = rollout_script(model, shape, work, setting, machine)
    if setting.preset:
        config = presets.load(setting.preset)
        presets.fill_hpz(config, machine.gpus_per_node)
        files[f"{setting.preset}.json"] = json.dumps(config, indent=4) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SwiftGrpoExtError(f"cannot write: {error.strerror}", where=f"--output {folder}") from None
    return [folder / name for name in files]


def train_script(model: str, shape: ModelShape, work: Work, plan: Plan, machine: Machine) -> str:
    """``swift rlhf`` with every argument that the plan decided; data and rewards are left to fill in."""
    setting = plan.setting
    nodes = setting.train_nodes(machine)
    ranks = setting.ranks_per_node(machine)
    variables = {"NPROC_PER_NODE": str(ranks), **_pixels(work)}
    if setting.rollout == "server" and machine.nodes == 1:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(ranks)))
    if nodes > 1:
        variables |= _nodes(nodes)
    arguments = _arguments(model, shape, work, setting)
    return _script([*_usage("train.sh"), *reasons(plan, machine)], variables, "swift rlhf", arguments)


def megatron_script(model: str, shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> str:
    """``megatron rlhf`` for a mixture of experts, of which each GPU holds some. Its memory is not planned."""
    gpus = machine.gpus
    variables = {"NPROC_PER_NODE": str(machine.gpus_per_node), **_pixels(work)}
    if machine.nodes > 1:
        variables |= _nodes(machine.nodes)
    shared = _arguments(model, shape, work, setting)
    names = """
        rlhf_type external_plugins model dataset val_dataset reward_funcs tuner_type torch_dtype learning_rate
        beta num_generations max_length max_completion_length lora_rank log_completions output_dir
    """
    arguments = {name: shared[name] for name in names.split() if name in shared}
    arguments |= {
        "tensor_model_parallel_size": 1,
        "expert_model_parallel_size": math.gcd(machine.gpus_per_node, 8),
        "micro_batch_size": 1,
        "global_batch_size": math.lcm(gpus, work.generations),
        "eval_steps": _EVALUATE_EVERY,
        "save_steps": _EVALUATE_EVERY,
        "recompute_granularity": "selective",
        "use_vllm": "true",
        "vllm_mode": "colocate",
        "vllm_tensor_parallel_size": setting.tensor_parallel,
        "vllm_gpu_memory_utilization": 0.5,
        "vllm_max_model_len": arithmetic.rounded_up(arithmetic.sequence_tokens(shape, work)),
        "sleep_level": 1,
        "offload_model": "true",
        "offload_optimizer": "true",
    }
    comments = [
        *_usage("train_megatron.sh"),
        "ms-swift's own way for a mixture of experts: each GPU holds a part of the experts.",
        "Its memory was not planned; it needs megatron-core and mcore-bridge.",
    ]
    return _script(comments, variables, "megatron rlhf", arguments)


def reasons(plan: Plan, machine: Machine) -> list[str]:
    """What was predicted of a setting, and why it was chosen, a sentence each."""
    setting = plan.setting
    least, most = (f"{size / GIB:.1f}" for size in plan.memory.peak)
    cpu = "-".join(f"{size / GIB:.0f}" for size in plan.memory.cpu_total)
    moment = MOMENTS[plan.memory.peak_phase]
    lines = [
        f"Predicted: a GPU is fullest {moment}, with {least} to {most} GiB of {machine.gpu_memory:g}; "
        f"{100 * plan.headroom:.0f} % are left.",
        f"A machine's memory holds {cpu} GiB.",
        _WHY_STAGE[setting.stage],
        _WHY_ROLLOUT[setting.rollout],
    ]
    if setting.offload_params or setting.offload_optimizer_states:
        lines.append(
            "Weights or optimizer states wait in the machine's memory: the GPUs alone are too small."
        )
    if setting.rollout == "colocate":
        moved = (
            "sleep in the machine's memory while vLLM samples" if setting.offload_model else "stay on the GPU"
        )
        lines.append(f"vLLM sleeps while the model trains; the model's weights {moved}.")
    return lines


# Why weights, gradients and optimizer states are shared out as they are, by ZeRO stage.
_WHY_STAGE = {
    0: "One GPU holds all of it, so nothing is shared out.",
    1: "Each GPU holds the whole model; gradients and optimizer states of LoRA are small.",
    2: "ZeRO-2 fits, which gathers no weights in a pass, as ZeRO-3 has to.",
    3: "ZeRO-3: one GPU does not hold the whole model beside the rest.",
}
_WHY_ROLLOUT = {
    "colocate": "vLLM shares the GPUs, so all of them train.",
    "server": "vLLM has GPUs of its own.",
    "transformers": "transformers samples: vLLM does not serve this model so, or was not asked for.",
}
_EVALUATE_EVERY = 50  # steps; a checkpoint is saved as often


def _usage(name: str) -> list[str]:
    return [
        "Written by swift-grpo-ext plan. Usage:",
        f'  DATASET=rows.jsonl VAL_DATASET=held_out.jsonl REWARDS="ext_count ext_format" bash {name}',
        "VAL_DATASET: rows that training does not see; the best checkpoint is chosen by them.",
    ]


def _nodes(nodes: int) -> dict[str, str]:
    return {"NNODES": str(nodes), "NODE_RANK": "${NODE_RANK:?}", "MASTER_ADDR": "${MASTER_ADDR:?}"}


def rollout_script(model: str, shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> str:
    """``swift rollout`` for the server's GPUs; MAX_PIXELS must be the trainer's."""
    arguments = {
        "model": model,
        "external_plugins": '"$(swift-grpo-ext path)"',
        "vllm_tensor_parallel_size": setting.tensor_parallel,
        "vllm_data_parallel_size": setting.server_gpus // setting.tensor_parallel,
        "vllm_gpu_memory_utilization": setting.utilization,
        "vllm_max_model_len": arithmetic.rounded_up(arithmetic.sequence_tokens(shape, work)),
    }
    variables = _pixels(work)
    if machine.nodes == 1:  # beside the trainer's
        first = setting.train_gpus(machine)
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + setting.server_gpus)))
    title = "Written by swift-grpo-ext plan: start it before train.sh."
    return _script([title], variables, "swift rollout", arguments)


def _arguments(model: str, shape: ModelShape, work: Work, setting: Setting) -> dict[str, object]:
    chosen: dict[str, object] = {
        "rlhf_type": "grpo",
        "external_plugins": '"$(swift-grpo-ext path)"',
        "model": model,
        "dataset": '"${DATASET:?}"',
        "val_dataset": '"${VAL_DATASET:?}"',
        "reward_funcs": "${REWARDS:?}",
        "tuner_type": "full" if work.full else "lora",
        "torch_dtype": "bfloat16",
        "attn_impl": setting.attention,
        "learning_rate": "1e-6" if work.full else "1e-5",
        "beta": 0.04 if work.kl else 0,
        "num_generations": work.generations,
        "per_device_train_batch_size": setting.micro_batch,
        "gradient_accumulation_steps": setting.accumulation,
        "max_length": arithmetic.rounded_up(arithmetic.prompt_tokens(shape, work)),
        "max_completion_length": work.completion_tokens,
        "ddp_timeout": 3600,
        "num_generations_eval": 1,  # answers to held-out rows are greedy
        "eval_steps": _EVALUATE_EVERY,
        "save_steps": _EVALUATE_EVERY,
        "save_total_limit": 2,
        "log_completions": "true",
        "output_dir": '"${OUTPUT:-output/' + _folder_name(model) + '}"',
        "report_to": "tensorboard",
    }
    if not work.full:
        chosen |= {"lora_rank": work.lora_rank, "lora_dropout": work.lora_dropout}
    if work.bits < 16:
        chosen |= {"quant_method": "bnb", "quant_bits": work.bits, "bnb_4bit_compute_dtype": "bfloat16"}
    if setting.preset:
        chosen["deepspeed"] = setting.preset
    return chosen | _rollout_arguments(shape, work, setting)


def _rollout_arguments(shape: ModelShape, work: Work, setting: Setting) -> dict[str, object]:
    if setting.rollout == "transformers":
        return {"use_vllm": "false"}
    chosen: dict[str, object] = {"use_vllm": "true", "vllm_mode": setting.rollout}
    if setting.move_model_batches:
        chosen["move_model_batches"] = setting.move_model_batches
    if setting.rollout == "server":
        return chosen | {"vllm_server_host": "${SERVER:-127.0.0.1}", "vllm_server_port": 8000}
    chosen |= {
        "vllm_tensor_parallel_size": setting.tensor_parallel,
        "vllm_gpu_memory_utilization": f"{setting.utilization:.2f}",
        "vllm_max_model_len": arithmetic.rounded_up(arithmetic.sequence_tokens(shape, work)),
        "sleep_level": setting.sleep_level,
    }
    moved = {"offload_model": setting.offload_model, "offload_optimizer": setting.offload_optimizer}
    return chosen | {name: str(given).lower() for name, given in moved.items()}


def _folder_name(model: str) -> str:
    """The last part of a model's name, without what a shell would read."""
    return re.sub(r"[^\w.-]", "_", model.rstrip("/").rpartition("/")[2])


def _pixels(work: Work) -> dict[str, str]:
    return {"MAX_PIXELS": str(work.max_pixels)} if work.images else {}


def _script(
    comments: Sequence[str], variables: dict[str, str], command: str, arguments: dict[str, object]
) -> str:
    lines = ["#!/usr/bin/env bash", *(f"# {comment}" for comment in comments), "set -euo pipefail"]
    lines += [f"export {name}={value}" for name, value in variables.items()]
    texts = {name: str(value) for name, value in arguments.items()}  # what is shell already stays as it is
    words = [f"--{name} {text if '$' in text else shlex.quote(text)}" for name, text in texts.items()]
    return "\n".join([*lines, " \\\n    ".join([command, *words])]) + "\n"
