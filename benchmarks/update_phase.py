"""The update phase of one group through the host's trainer and through ours, side by side in one process.

    python benchmarks/update_phase.py --family qwen2_5_vl --size mini --group 8 --image-tokens 576 \\
        --completion 128 --beta 0.04 --device cpu --repeats 3 --json OUT

Both trainers are built by the host's own pipeline from one random checkpoint and run their own ``train`` with
the same made-up completions and rewards. Measured is the training step: encoding, old and reference passes,
policy pass, loss and backward. ``--repeats`` runs of each, taken in turn. ``--engine megatron`` measures
steps of `megatron rlhf` instead, with PyTorch in the place of its kernels (docs/megatron.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from bench_measure import exact_heap, file_to_write, machine, median
from bench_models import PATCH, build_checkpoint, counted_work
from bench_operations import Case, bound
from bench_shapes import SHAPES
from bench_trainers import (
    HOST,
    OURS,
    Update,
    attributes,
    build_trainer,
    made_up_rewards,
    made_up_rollouts,
    no_dropout,
    run_update,
)


def build_dataset(case: Case, folder: Path, patch: int = 14, different: bool = False) -> Path:
    """One question about one noisy image of the wanted size as often as a dataset needs rows, or several."""
    from PIL import Image

    height, width = (patch * side for side in case.grid)
    torch.manual_seed(0)
    noise = (torch.rand(height, width, 3) * 255).byte().numpy()
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise).save(folder / "noise.png")
    words = ("digit ", "round ", "seven ", "eight ", "three ", "number ", "looks ", "which ")
    rows = [
        {
            "messages": [{"role": "user", "content": "<image>" + word * max(1, case.text_tokens - 24)}],
            "images": [str(folder / "noise.png")],
        }
        for word in (words if different else words[:1] * 8)
    ]
    path = folder / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def largest_logp_difference(one: Update, other: Update) -> float:
    """Over the completions; both trainers put other figures where nothing counts."""
    assert one.logps is not None
    assert other.logps is not None
    return float((one.logps - other.logps).abs().max())


def gradient_difference(ours: Update, stock: Update) -> float:
    """Norm of the difference over the norm of the stock gradients."""
    above = sum(float((ours.gradients[name] - grad).square().sum()) for name, grad in stock.gradients.items())
    below = sum(float(grad.square().sum()) for grad in stock.gradients.values())
    return (above / below) ** 0.5


def case_of(asked: argparse.Namespace) -> Case:
    """The case that was asked for."""
    return Case(
        asked.group,
        asked.image_tokens,
        asked.text_tokens,
        asked.completion,
        asked.beta,
        not asked.no_checkpointing,
        asked.tuner == "lora",
    )


def build_both(asked: argparse.Namespace, case: Case, folder: Path, **further: Any) -> dict[str, Any]:
    """The host's trainer (``stock``) and ours (``ext``) on one checkpoint."""
    dtype = "bfloat16" if asked.device == "cuda" else "float32"
    shape = SHAPES[asked.size]
    model = build_checkpoint(asked.family, shape, case, folder / "model", asked.device, dtype)
    dataset = build_dataset(case, folder / "data", PATCH[asked.family])
    arguments: dict[str, Any] = {
        "use_cpu": asked.device == "cpu",
        "optim": "sgd",  # not measured: the moments of two trainers need not fit
        "per_device_train_batch_size": case.group // asked.accumulation,
        "gradient_accumulation_steps": asked.accumulation,
        **further,
    }
    if asked.device == "cuda":
        arguments |= {"bf16": True, "torch_dtype": dtype}
    if case.lora:
        arguments |= {"tuner_type": "lora", "lora_dropout": asked.lora_dropout}
    return {
        name: build_trainer(path, model, dataset, folder / name, case, **arguments)
        for name, path in (("stock", HOST), ("ext", OURS))
    }


def bytes_of_weights(trainer: Any) -> int:
    """Of the policy, and of the reference if there is one; memory that they share once."""
    models = filter(None, (trainer.model, trainer.ref_model))
    parts = {p.data_ptr(): p.nbytes for model in models for p in model.parameters()}
    return sum(parts.values())


def measure_silent(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Our update phase over two groups of which some are silent: with their passes, and without, in turn."""
    from swift_grpo_ext.group.zero_advantage import zero_advantage_rows
    from swift_grpo_ext.trainer import silence

    case = case_of(asked)
    model = build_checkpoint(asked.family, SHAPES[asked.size], case, folder / "model")
    dataset = build_dataset(case, folder / "data", different=True)
    options = {"use_cpu": asked.device == "cpu", "per_device_train_batch_size": 2 * case.group}
    trainer = build_trainer(OURS, model, dataset, folder / "run", case, **options)
    seconds: dict[str, list[float]] = {"forwarded": [], "left_out": []}
    for repeat in range(-1, asked.repeats):  # the first with the self-check
        for name, found in seconds.items():
            made_up_rollouts(trainer, case, max(repeat, 0))
            made_up_rewards(trainer, max(repeat, 0), round(2 * asked.silent) * case.group)
            trainer.model.zero_grad(set_to_none=True)
            hear_all = {"zero_advantage_rows": lambda *args: zero_advantage_rows(*args) & False}
            with attributes(silence, hear_all if name == "forwarded" else {}):
                took = run_update(trainer).seconds
            if repeat >= 0:
                found.append(took)
    ratio = median(seconds["forwarded"]) / median(seconds["left_out"])
    return {"ratio": ratio, "all_seconds": seconds, "silent": asked.silent, "case": asdict(case)}


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one case."""
    case = case_of(asked)
    trainers: dict[str, Any] = {}

    def run(name: str, seed: int, keep_gradients: bool = False) -> Update:
        trainer = trainers[name]
        made_up_rollouts(trainer, case, seed)
        trainer.model.zero_grad(set_to_none=True)
        return run_update(trainer, keep_gradients)

    def compare(name: str) -> Update:
        with no_dropout(trainers[name].model):
            return run(name, 0, keep_gradients=True)

    with exact_heap():  # memory and comparison
        trainers |= build_both(asked, case, folder)
        run("ext", 0)  # with the self-check, and with what a process loads and allocates once
        first = {name: compare(name) for name in trainers}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    last: dict[str, Update] = {}
    for repeat in range(asked.repeats):
        for name in trainers:
            last[name] = run(name, repeat)
            seconds[name].append(last[name].seconds)
    device = trainers["ext"].accelerator.device
    peaks = {name: bytes_of_weights(trainers[name]) + update.peak.above for name, update in first.items()}
    stock_seconds, ext_seconds = median(seconds["stock"]), median(seconds["ext"])
    policy = trainers["ext"].accelerator.unwrap_model(trainers["ext"].model)
    limit = bound(counted_work(trainers["ext"].template.get_base_model(policy)), case)
    ratios = [stock / ext for stock, ext in zip(seconds["stock"], seconds["ext"], strict=True)]
    return {
        "ratio": stock_seconds / ext_seconds,
        "ratio_of_each_repeat": {"lowest": min(ratios), "highest": max(ratios), "repeats": len(ratios)},
        "stock_seconds": stock_seconds,
        "ext_seconds": ext_seconds,
        "all_seconds": seconds,
        "peak_memory_ratio": peaks["ext"] / peaks["stock"],
        "peak_bytes": peaks,
        "peak_above_start_ratio": first["ext"].peak.above / first["stock"].peak.above,
        "logp_max_diff": largest_logp_difference(first["ext"], first["stock"]),
        "grad_rel_diff": gradient_difference(first["ext"], first["stock"]),
        "tower_calls": last["ext"].tower_calls,
        "stock_tower_calls": last["stock"].tower_calls,
        "tokens": last["ext"].tokens,
        "stock_tokens": last["stock"].tokens,
        "bound": limit,
        "of_bound": stock_seconds / ext_seconds / limit,
        "family": asked.family,
        "size": asked.size,
        "case": asdict(case),
        "accumulation": asked.accumulation,
        "machine": machine(device),
    }


def measure_megatron(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one case under Megatron."""
    import megatron_update

    case = case_of(asked)
    model = build_checkpoint(asked.family, SHAPES[asked.size], case, folder / "model")
    rows = build_dataset(case, folder / "data", PATCH[asked.family])
    return megatron_update.measure(asked, case, model, rows, folder)


def arguments_of_benchmark(
    description: str | None, further: Callable[[argparse.ArgumentParser], None] = lambda parser: None
) -> argparse.Namespace:
    """Read the command line, with further options of one benchmark, and set up the environment by it."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", default="qwen2_5_vl", choices=sorted(PATCH))
    parser.add_argument("--size", default="mini", choices=sorted(SHAPES))
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument(
        "--accumulation", type=int, default=1, help="micro-batches that the group is typed in; ours cuts anew"
    )
    parser.add_argument("--image-tokens", type=int, default=576)
    parser.add_argument("--text-tokens", type=int, default=42, help="roughly; counts for the bound")
    parser.add_argument("--completion", type=int, default=128)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument(
        "--silent",
        type=float,
        default=0.0,
        help="share of silent groups, 0.5 or 1, with --beta 0",
    )
    parser.add_argument(
        "--tuner", default="full", choices=["full", "lora"], help="lora: as ms-swift sets it up"
    )
    parser.add_argument(
        "--lora-dropout", type=float, default=0.05, help="ms-swift's default; none in the comparison"
    )
    parser.add_argument("--json", type=file_to_write)
    further(parser)
    asked = parser.parse_args()
    os.environ["SWIFT_GRPO_EXT_DISABLE"] = "callbacks"  # the monitors watch one run, not one after another
    from swift_grpo_ext.testing import cpu_environment

    if asked.device == "cpu":
        os.environ.update(cpu_environment())
    return asked


def report(asked: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write the figures to the file that was asked for, and print them."""
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(json.dumps(result, indent=1))


def main() -> None:
    engines = {"transformers": measure, "megatron": measure_megatron}
    asked = arguments_of_benchmark(
        __doc__, lambda parser: parser.add_argument("--engine", default="transformers", choices=engines)
    )
    with tempfile.TemporaryDirectory() as folder:
        report(asked, (measure_silent if asked.silent else engines[asked.engine])(asked, Path(folder)))


if __name__ == "__main__":
    main()
