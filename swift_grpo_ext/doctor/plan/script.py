"""Writes the launch script of a setting, for one node or several."""

import json
import shlex
from pathlib import Path

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.search import Plan
from swift_grpo_ext.doctor.plan.setting import Machine, ModelShape, Setting, Work
from swift_grpo_ext.errors import SwiftGrpoExtError


def write(
    folder: Path, model: str, shape: ModelShape, work: Work, plan: Plan, machine: Machine
) -> list[Path]:
    """Write ``train.sh``, the DeepSpeed JSON, and with a rollout server ``rollout.sh`` into a folder.

    Raises:
        SwiftGrpoExtError: The folder cannot be written.
    """
    setting = plan.setting
    files = {"train.sh": train_script(model, shape, work, setting, machine)}
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


def train_script(model: str, shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> str:
    """``swift rlhf`` with every argument that the plan decided; data and rewards are left to fill in."""
    nodes = setting.train_nodes(machine)
    ranks = setting.ranks_per_node(machine)
    variables = {"NPROC_PER_NODE": str(ranks), **_pixels(work)}
    if setting.rollout == "server" and machine.nodes == 1:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(ranks)))
    if nodes > 1:
        variables |= {"NNODES": str(nodes), "NODE_RANK": "${NODE_RANK:?}", "MASTER_ADDR": "${MASTER_ADDR:?}"}
    arguments = _arguments(model, shape, work, setting)
    return _script("Written by swift-grpo-ext plan.", variables, "swift rlhf", arguments)


def rollout_script(model: str, shape: ModelShape, work: Work, setting: Setting, machine: Machine) -> str:
    """``swift rollout`` for the server's GPUs; MAX_PIXELS must be the trainer's."""
    arguments = {
        "model": model,
        "external_plugins": '"$(swift-grpo-ext path)"',
        "vllm_tensor_parallel_size": setting.tensor_parallel,
        "vllm_data_parallel_size": setting.server_gpus // setting.tensor_parallel,
        "vllm_gpu_memory_utilization": setting.utilization,
        "vllm_max_model_len": _up(arithmetic.sequence_tokens(shape, work)),
    }
    variables = _pixels(work)
    if machine.nodes == 1:  # beside the trainer's
        first = setting.train_gpus(machine)
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(first, first + setting.server_gpus)))
    title = "Written by swift-grpo-ext plan: start it before train.sh."
    return _script(title, variables, "swift rollout", arguments)


def _arguments(model: str, shape: ModelShape, work: Work, setting: Setting) -> dict[str, object]:
    chosen: dict[str, object] = {
        "rlhf_type": "grpo",
        "external_plugins": '"$(swift-grpo-ext path)"',
        "model": model,
        "dataset": '"${DATASET:?}"',
        "reward_funcs": "${REWARDS:?}",
        "tuner_type": "full" if work.full else "lora",
        "torch_dtype": "bfloat16",
        "attn_impl": setting.attention,
        "learning_rate": "1e-6" if work.full else "1e-5",
        "beta": 0.04 if work.kl else 0,
        "num_generations": work.generations,
        "per_device_train_batch_size": setting.micro_batch,
        "gradient_accumulation_steps": setting.accumulation,
        "max_length": _up(arithmetic.prompt_tokens(shape, work)),
        "max_completion_length": work.completion_tokens,
        "ddp_timeout": 3600,
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
        "vllm_max_model_len": _up(arithmetic.sequence_tokens(shape, work)),
        "sleep_level": setting.sleep_level,
    }
    moved = {"offload_model": setting.offload_model, "offload_optimizer": setting.offload_optimizer}
    return chosen | {name: "true" for name, given in moved.items() if given}


def _up(tokens: int) -> int:
    return -(-tokens // 256) * 256


def _pixels(work: Work) -> dict[str, str]:
    return {"MAX_PIXELS": str(work.max_pixels)} if work.images else {}


def _script(title: str, variables: dict[str, str], command: str, arguments: dict[str, object]) -> str:
    lines = ["#!/usr/bin/env bash", f"# {title}", "set -euo pipefail"]
    lines += [f"export {name}={value}" for name, value in variables.items()]
    texts = {name: str(value) for name, value in arguments.items()}  # what is shell already stays as it is
    words = [f"--{name} {text if '$' in text else shlex.quote(text)}" for name, text in texts.items()]
    return "\n".join([*lines, " \\\n    ".join([command, *words])]) + "\n"
