"""Runs of both engines in children, and what they recorded, side by side."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import kill_tree
from tests.megatron.recording import plain_name

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
PATH = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(PROJECT)]))
LIMIT = 280  # seconds of a run, which takes twenty
FURTHER = 60  # seconds of each further run of the same processes, which takes three
BOTH = {
    "rlhf_type": "grpo",
    "num_generations": 4,
    "max_completion_length": 16,
    "max_length": 512,
    "beta": 0.04,
    "temperature": 0.9,
    "adam_beta2": 0.95,
    "weight_decay": 0,
    "logging_steps": 1,
    "reward_funcs": "made_up",
    "split_dataset_ratio": 0,
    "freeze_vit": False,
    "freeze_aligner": False,
    "add_version": False,
    "check_model": False,
    "torch_dtype": "float32",
    "load_from_cache_file": False,
    "dataset_num_proc": 1,
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "seed": 42,
}
FIXES = {
    "external_plugins": plugin_file().with_name("ext_compat.py")
}  # fixes of the stack, nothing else of ours
# With this epsilon a step of Adam is nearly one of plain descent: differences of rounding stay as small as they are.
RATE, EPSILON = 1e-2, 1e-2
MEGATRON = {
    **BOTH,
    "micro_batch_size": 4,
    "global_batch_size": 16,
    "train_iters": 3,
    "lr": RATE,
    "adam_eps": EPSILON,
    "lr_decay_style": "constant",
    "lr_warmup_fraction": 0,
    "clip_grad": 1.0,
    "bf16": False,
    "fp16": False,
    "ddp_backend": "gloo",
    "dataloader_pin_memory": False,
    "vllm_mode": "colocate",
    "report_to": "tensorboard",
    "save_steps": 1000,
    "no_save_optim": True,
    "no_save_rng": True,
    "gradient_accumulation_fusion": False,
    "recompute_granularity": "none",
    "vit_attn_impl": "sdpa",
}
ENGINE = {"vllm_max_model_len": 512, "vllm_enforce_eager": True}
TRANSFORMERS = {
    **BOTH,
    **testing.CPU_ARGUMENTS,
    "tuner_type": "full",
    "use_vllm": False,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "max_steps": 3,
    "learning_rate": RATE,
    "adam_epsilon": EPSILON,
    "lr_scheduler_type": "constant",
    "warmup_ratio": 0,
    "max_grad_norm": 1.0,
    "save_strategy": "no",
    "gradient_checkpointing": False,
}


class RunError(Exception):
    """A run ended badly; its last output."""


@dataclass(frozen=True)
class Run:
    """What a run recorded: see recording.py."""

    folder: Path

    @cached_property
    def ranks(self):
        files = sorted(self.folder.glob("rank*.pt"), key=lambda file: int(file.stem[4:]))
        return [torch.load(file, weights_only=True) for file in files]

    @property
    def output(self):
        """All that the ranks wrote to stdout and stderr."""
        return (self.folder / "output.txt").read_text(encoding="utf-8")

    @property
    def mode(self):
        return self.ranks[0]["mode"]

    @property
    def logs(self):
        """What is logged, a table per optimizer step."""
        return self.ranks[-1]["logs"]

    @property
    def seconds(self):
        """Of each step: rollout, scores, passes, backward and update, on the slowest rank."""
        return [max(step) for step in zip(*(rank["seconds"] for rank in self.ranks), strict=True)]

    @property
    def counts(self):
        """What went through the parts of the models in each step, summed over ranks."""
        steps = zip(*(rank["counts"] for rank in self.ranks), strict=True)
        return [
            {name: sum(rank.get(name, 0) for rank in step) for name in set().union(*step)} for step in steps
        ]

    @property
    def samples(self):
        """Per step: ``(advantage, tokens)`` of each completion, and its log-probs by ``policy``, ``old`` and ``ref``.

        Advantages of made-up rewards tell completions apart, in whatever order and layout they are computed.
        """
        steps = [{} for _ in self.logs]
        for rank in self.ranks:
            taken = [{} for _ in self.logs]
            for batch in rank["micro_batches"]:
                for row, mask in enumerate(batch["mask"]):
                    if not mask.any():  # it is not in the loss
                        continue
                    advantage = batch["advantages"][row]
                    advantage = advantage[mask][0] if advantage.dim() else advantage
                    key = (round(advantage.item(), 4), int(mask.sum()))
                    assert key not in taken[batch["step"]], f"two completions with advantage and length {key}"
                    names = [name for name in ("policy", "old", "ref") if batch[name] is not None]
                    taken[batch["step"]][key] = {name: batch[name][row][mask] for name in names}
            for step, rows in zip(steps, taken, strict=True):
                step.update(rows)
        return steps

    @property
    def gradients(self):
        """Per step every gradient before clipping, by a name that does not depend on the engine."""
        return [plain_names(step) for step in self.ranks[0]["gradients"]]


def plain_names(gradients):
    """One spelling of what checkpoints and models of both engines name differently; experts in one tensor."""
    plain, experts = {}, {}
    for name, tensor in gradients.items():
        name = plain_name(name)
        if expert := re.fullmatch(r"(.*experts)\.(\d+)\.(gate|up|down)_proj\.weight", name):
            experts.setdefault(expert[1], {})[expert[3], int(expert[2])] = tensor
        else:
            plain[name] = tensor
    for name, parts in experts.items():
        numbers = range(len(parts) // 3)
        both = [torch.cat([parts["gate", number], parts["up", number]]) for number in numbers]
        plain[f"{name}.gate_up_proj"] = torch.stack(both)
        plain[f"{name}.down_proj"] = torch.stack([parts["down", number] for number in numbers])
    return plain


@dataclass(frozen=True)
class Order:
    """A run to make: arguments on top of `MEGATRON`, None leaves one out."""

    model: Path
    rows: Path
    folder: Path
    arguments: dict
    lengths: tuple[int, int] = (4, 14)  # shortest and longest completion, in tokens
    gradients: bool = True  # record them, which costs time in each step
    disable: str = ""  # SWIFT_GRPO_EXT_DISABLE
    sampled: bool = False  # completions are sampled from the policy, in all runs of the same processes

    @property
    def words(self):
        """The command line."""
        return testing.command_line(
            {**MEGATRON, **_given(self.model, self.rows, self.folder), **self.arguments}
        )


def train_megatron(python, model, rows, folder, ranks=1, **arguments):
    """Run `megatron rlhf --rlhf_type grpo` with that Python; arguments on top of `MEGATRON`, None leaves one out."""
    return train_all(python, [Order(model, rows, Path(folder), arguments)], ranks)[0]


def train_all(python, orders, ranks=1, limit=LIMIT):
    """Make runs of `megatron rlhf` one after the other in the same processes, which import everything once.

    ``limit`` is in seconds, of the first.

    Raises:
        RunError: One of them failed, with what they wrote; those after it are not made.
    """
    first = orders[0].folder
    for order in orders:
        order.folder.mkdir(parents=True, exist_ok=True)
    runs = [
        {
            "folder": str(order.folder),
            "lengths": order.lengths,
            "gradients": order.gradients,
            "disable": order.disable,
            "sampled": order.sampled,
            "arguments": order.words,
        }
        for order in orders
    ]
    (first / "runs.json").write_text(json.dumps(runs), encoding="utf-8")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    words = [*(launcher if ranks > 1 else []), HERE / "megatron_child.py", first / "runs.json"]
    _start([python, *words], first, limit + len(orders) * FURTHER)
    return [Run(order.folder) for order in orders]


def train_transformers(model, rows, folder, python=sys.executable, **arguments):
    """Run `swift rlhf` in one process; arguments on top of `TRANSFORMERS`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    words = testing.command_line({**TRANSFORMERS, **_given(model, rows, folder), **arguments})
    _start([python, HERE / "transformers_child.py", folder, *words], folder, LIMIT)
    return Run(folder)


def train_with_ray(python, model, rows, folder, workers=1, engine=None, **arguments):
    """Run ms-swift's Ray trainer with so many workers on a CPU; arguments on top of `MEGATRON`.

    Ray counts GPUs that are not there: it believes the variable, and the workers' CUDA is the CPU. Completions are
    made up, or sampled by one `Engine` beside each worker.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    given = {**MEGATRON, **_given(model, rows, folder), "offload_model": False, **arguments}
    config = {name: _plain(value) for name, value in given.items() if value is not None}
    config |= {"train": {"gpus": workers}, "rollout": {"gpus": 0}}
    if engine:
        config |= {
            "rollout": {"gpus": workers, **ENGINE},
            "colocate_groups": [["train", "rollout"]],
            "sleep_level": 0,
        }
    (folder / "run.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(workers))),
        "RAY_AUTH_MODE": "disabled",
        "RAY_DEDUP_LOGS": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # it ends workers where other programs have filled the machine
        "PYTHONPATH": os.pathsep.join([PATH, str(HERE), *(engine.path if engine else ())]),
        **(engine.variables if engine else {}),
    }
    _start([python, HERE / "ray_child.py", folder / "run.yaml"], folder, LIMIT, environment)
    return Run(folder)


@dataclass(frozen=True)
class Engine:
    """vLLM for the CPU, in an environment of its own, beside Ray's workers.

    Attributes:
        packages: Where it is installed.
        forgets: Whether it drops the features of images with each sync of weights, as ms-swift does without Ray.
    """

    packages: Path
    forgets: bool = True

    @property
    def path(self):
        """What its processes find modules in."""
        return [str(HERE / "engine_preload"), str(self.packages)]

    @property
    def variables(self):
        """What it is told by its environment."""
        return {
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "SWIFT_RAY_WEIGHT_BUCKET_MB": "64",
            **({"RAY_ENGINE_FORGETS": "1"} if self.forgets else {}),
        }


def _plain(value):
    """As a YAML file has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _given(model, rows, folder):
    return {"model": model, **testing.host_types(model), "dataset": rows, "output_dir": folder}


def _start(command, folder, limit, further=()):
    environment = {
        **os.environ,
        **testing.cpu_environment(),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": PATH,
        **dict(further),
    }
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*map(str, command)], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"no end after {limit} s"
        finally:
            kill_tree(process.pid)
    if code != 0:
        raise RunError(
            f"{command[-2]}: {code}\n{(folder / 'output.txt').read_text(encoding='utf-8')[-6000:]}"
        )
