"""Makes the runs of a case and measures how far they are apart."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairs.cases import BASE, MEGATRON, Case, Options
from pairs.scripted import installed
from safetensors.torch import load_file

from swift_grpo_ext import register, testing
from swift_grpo_ext.plugin_files import plugin_file

HERE = Path(__file__).parent
DISABLE = "SWIFT_GRPO_EXT_DISABLE"
PLUGIN = "from pairs import scripted\n\nscripted.install()\nscripted.script_megatron()\n"
# Largest difference that the order of single-precision sums explains.
TOLERANCE = {
    **{"loss": 1e-5, "grad_norm": 1e-5, "kl": 1e-5, "parameters": 1e-4},
    **{"reference": 1e-5, "log_ratio": 0.0, "clipped": 0.0},
}


@dataclass(frozen=True)
class Bench:
    """Shared by all runs of a family: checkpoint, JSONL of rows with an image each, empty output folder."""

    model: Path
    dataset: Path
    folder: Path


@dataclass(frozen=True)
class Result:
    """Numbers of one run: the logged steps, and the folder with its checkpoints."""

    steps: list[dict[str, Any]]
    folder: Path
    measured: dict[str, float]


def bench_of(family: str, folder: Path, *, megatron: bool = False) -> Bench:
    """A tiny model of a family and its rows."""
    # Two ranks share the heads of keys and values.
    heads: dict[str, Any] = {"num_key_value_heads": 2} if megatron else {}
    model = testing.tiny_checkpoint(family, folder / "model", **heads)
    rows = testing.digits_dataset(folder / "digits", limit=32).train
    if megatron:  # all in each step: the engines draw them in different orders
        lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = rows.with_name("two.jsonl")
        rows.write_text("".join(lines[:2]), encoding="utf-8")
    return Bench(model, rows, folder)


def too_far(differences: dict[str, float]) -> dict[str, float]:
    """Those that rounding does not explain; NaN is one of them."""
    return {name: value for name, value in differences.items() if not value <= TOLERANCE[name]}


def compare(case: Case, bench: Bench) -> dict[str, float]:
    """The largest difference of the runs of a case, by figure."""
    folder = bench.folder / "".join(char if char.isalnum() else "_" for char in case.name)
    first = _run(bench, case, case.one, folder / "one")
    if case.other is None:
        return {name: first.measured.get(name, math.nan) for name in case.measures}
    checkpoint = first.folder / f"checkpoint-{case.resume}" if case.resume else None
    other = _run(bench, case, case.other, folder / "other", case.ranks, checkpoint, case.megatron)
    measures = differences(first, other, bench.model, skip=case.resume)
    if case.megatron:
        # Megatron logs a mean over the tokens of a micro-batch, not over rows. The loss has the KL, too.
        del measures["kl"]
    return measures


def differences(one: Result, other: Result, model: Path, skip: int = 0) -> dict[str, float]:
    """Largest differences of two runs after `skip` steps; NaN where one side has none.

    ``grad_norm`` is relative, and ``parameters``, to the largest change of any since the start.
    """
    mine = {_step(row): row for row in one.steps[skip:]}
    theirs = {_step(row): row for row in other.steps}
    if not mine or not set(mine) <= set(theirs):
        return dict.fromkeys(("loss", "grad_norm", "kl", "parameters"), math.nan)
    pairs = [(mine[step], theirs[step]) for step in mine]
    return {
        "loss": max(abs(a["loss"] - b["loss"]) for a, b in pairs),
        "grad_norm": max(abs(a["grad_norm"] - b["grad_norm"]) / max(a["grad_norm"], 1e-12) for a, b in pairs),
        "kl": max(abs(a["kl"] - b["kl"]) for a, b in pairs),
        "parameters": _parameter_difference(one.folder, other.folder, model),
    }


def _step(row: dict[str, Any]) -> str:
    return str(row.get("global_step/max_steps") or row["iteration"])  # Megatron calls it otherwise


def _parameter_difference(one: Path, other: Path, model: Path) -> float:
    def last(folder: Path) -> Path:
        return max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))

    adapters = (last(one) / "adapter_model.safetensors").is_file()
    name = "adapter_model.safetensors" if adapters else "model.safetensors"
    start = {} if adapters else load_file(model / name)
    ours, theirs = (load_file(last(folder) / name) for folder in (one, other))
    # Of an adapter's two matrices B starts at 0.
    moving = [key for key in ours if not adapters or "lora_B" in key]
    moved = max(float((ours[key] - start.get(key, 0.0)).abs().max()) for key in moving)
    apart = max(float((ours[key] - theirs[key]).abs().max()) for key in ours)
    return apart / moved if moved else math.nan


def _run(
    bench: Bench,
    case: Case,
    options: Options,
    folder: Path,
    ranks: int = 1,
    checkpoint: Path | None = None,
    megatron: bool = False,
) -> Result:
    """One run of ms-swift: inside this process, or as a command where it takes several ranks or Megatron."""
    folder.mkdir(parents=True)
    plugins = [plugin_file()]
    as_command = ranks > 1 or case.megatron
    if as_command:
        plugins.append(folder / "scripted_runs.py")
        plugins[1].write_text(PLUGIN, encoding="utf-8")
    chosen = {**BASE, "save_steps": options.get("max_steps", BASE["max_steps"]), **options}
    if checkpoint is not None:
        chosen["resume_from_checkpoint"] = checkpoint
    if megatron:
        chosen |= MEGATRON
    arguments = testing.grpo_arguments(bench.model, bench.dataset, folder, external_plugins=plugins, **chosen)
    stock = "compat,trainer" if os.environ.get("PAIRS_STOCK") else ""
    off = (os.environ.get(DISABLE), stock, case.disabled, "callbacks.report")
    env = {DISABLE: ",".join(filter(None, off))}
    measured: dict[str, float] = {}
    if megatron:  # kernels of single precision would round factors to 10 bits
        env |= {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_TF32_OVERRIDE": "0"}
    if as_command:
        env["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        testing.run_swift("rlhf", arguments, env, ranks=ranks, timeout=900, megatron=megatron)
    else:
        register()  # it does so once per process, so a host put back to before would stay without
        with installed("reference" in case.measures) as found:
            testing.run_in_process("rlhf", arguments, env)
            measured |= found
    steps = [row for row in testing.read_logging(folder) if "loss" in row]
    measured["clipped"] = max(row.get("clip_ratio/region_mean", math.nan) for row in steps)
    return Result(steps, testing.newest_version(folder), measured)
