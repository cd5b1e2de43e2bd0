"""Makes the runs of a case and holds their numbers against each other."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_grpo_ext import register, testing
from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.settings import PREFIX
from swift_grpo_ext.testing.selftest.cases import BASE, Case, Options

DISABLE = f"{PREFIX}DISABLE"
PLUGIN = "from swift_grpo_ext.testing.selftest import plugin\n\nplugin.install()\n"
# Largest difference that the order of single-precision sums explains.
TOLERANCE = {
    **dict.fromkeys(("loss", "grad_norm", "kl", "reference"), 1e-5),
    **{"parameters": 1e-4, "log_ratio": 0.0, "clipped": 0.0},
}


@dataclass(frozen=True)
class Bench:
    """What all runs of a family share: checkpoint, JSONL of rows with an image each, empty output folder."""

    model: Path
    dataset: Path
    folder: Path


@dataclass(frozen=True)
class Result:
    """Numbers of one run: the logged steps, and the folder with its checkpoints."""

    steps: list[dict[str, Any]]
    folder: Path
    measured: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """What a case gave: the largest difference by figure, and where they lie above the tolerance."""

    case: Case
    differences: dict[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def violated(self) -> bool:
        """The case is one that must be equal, and is not."""
        if self.case.differs:
            return False
        far = [name for name, value in self.differences.items() if not value <= TOLERANCE[name]]
        return bool(self.error or far)


def find(case: Case, bench: Bench) -> Comparison:
    """Run a case. An error of a run is a comparison like any other: the rest of the table goes on."""
    folder = bench.folder / "".join(char if char.isalnum() else "_" for char in case.name)
    try:
        one = _run(bench, case, case.one, folder / "one")
        if case.other is None:
            return Comparison(case, {name: one.measured.get(name, math.nan) for name in case.measures})
        checkpoint = one.folder / f"checkpoint-{case.resume}" if case.resume else None
        other = _run(bench, case, case.other, folder / "other", case.ranks, checkpoint)
        return Comparison(case, differences(one, other, bench.model, skip=case.resume))
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, OSError, HostRunError) as error:
        return Comparison(case, error=f"{type(error).__name__}: {error}".splitlines()[0][:160])


def differences(one: Result, other: Result, model: Path, skip: int = 0) -> dict[str, float]:
    """Largest differences of two runs after `skip` steps: ``loss`` and ``kl`` in their own units,
    ``grad_norm`` relative, ``parameters`` relative to the largest change of any since the start; NaN where
    one side has none.
    """
    mine = {row["global_step/max_steps"]: row for row in one.steps[skip:]}
    theirs = {row["global_step/max_steps"]: row for row in other.steps}
    if not mine or not set(mine) <= set(theirs):
        return dict.fromkeys(("loss", "grad_norm", "kl", "parameters"), math.nan)
    pairs = [(mine[step], theirs[step]) for step in mine]
    return {
        "loss": max(abs(a["loss"] - b["loss"]) for a, b in pairs),
        "grad_norm": max(abs(a["grad_norm"] - b["grad_norm"]) / max(a["grad_norm"], 1e-12) for a, b in pairs),
        "kl": max(abs(a["kl"] - b["kl"]) for a, b in pairs),
        "parameters": _parameter_difference(one.folder, other.folder, model),
    }


def _parameter_difference(one: Path, other: Path, model: Path) -> float:
    from safetensors.torch import load_file

    checkpoints = [
        max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        for folder in (one, other)
    ]
    adapters = (checkpoints[0] / "adapter_model.safetensors").is_file()
    name = "adapter_model.safetensors" if adapters else "model.safetensors"
    start = {} if adapters else load_file(model / name)
    ends = [load_file(checkpoint / name) for checkpoint in checkpoints]
    # Of an adapter's two matrices B starts at 0.
    moving = [key for key in ends[0] if not adapters or "lora_B" in key]
    moved = max(float((ends[0][key] - start.get(key, 0.0)).abs().max()) for key in moving)
    apart = max(float((ends[0][key] - ends[1][key]).abs().max()) for key in ends[0])
    return apart / moved if moved else math.nan


def _run(
    bench: Bench, case: Case, options: Options, folder: Path, ranks: int = 1, checkpoint: Path | None = None
) -> Result:
    """One run of ms-swift: inside this process, or as a command where it takes several ranks."""
    folder.mkdir(parents=True)
    plugin = folder / "ext_selftest.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    chosen = {**BASE, "save_steps": options.get("max_steps", BASE["max_steps"]), **options}
    if checkpoint is not None:
        chosen["resume_from_checkpoint"] = checkpoint
    arguments = testing.grpo_arguments(
        bench.model, bench.dataset, folder, external_plugins=[plugin_file(), plugin], **chosen
    )
    reference = "1" if "reference" in case.measures else ""
    asked = (os.environ.get(DISABLE), case.variables.get(DISABLE), "callbacks.report")
    env = {"SELFTEST_REFERENCE": reference, **case.variables, DISABLE: ",".join(filter(None, asked))}
    measured: dict[str, float] = {}
    if ranks > 1:
        testing.run_swift("rlhf", arguments, env, ranks=ranks, timeout=900)
    else:
        register()  # it does so once per process, so a host put back to before would stay without
        from swift_grpo_ext.testing.selftest.plugin import installed

        with installed() as measured:
            testing.run_in_process("rlhf", arguments, env)
            measured = dict(measured)
    steps = [row for row in testing.read_logging(folder) if "loss" in row]
    measured["clipped"] = max(row.get("clip_ratio/region_mean", math.nan) for row in steps)
    return Result(steps, testing.newest_version(folder), measured)
