"""The command: makes the runs of each case, compares their numbers, prints the table."""

import logging
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_grpo_ext import register, testing
from swift_grpo_ext.errors import HostRunError, SwiftGrpoExtError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.settings import PREFIX
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.testing.selftest.cases import (
    BASE,
    FAMILIES,
    MEGATRON,
    Case,
    Options,
    cases,
    megatron_cases,
)

DISABLE = f"{PREFIX}DISABLE"
DEVICES = "SELFTEST_DEVICES"  # the user's CUDA_VISIBLE_DEVICES, where there were some
PLUGIN = "from swift_grpo_ext.testing.selftest import plugin\n\nplugin.install()\nplugin.script_megatron()\n"
# Largest difference that the order of single-precision sums explains.
TOLERANCE = {
    **{"loss": 1e-5, "grad_norm": 1e-5, "kl": 1e-5, "parameters": 1e-4},
    **{"reference": 1e-5, "log_ratio": 0.0, "clipped": 0.0},
}
_WIDTH = 56  # characters of a case's name


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
        equal = all(value <= TOLERANCE[name] for name, value in self.differences.items())  # NaN is not
        return not self.case.differs and (bool(self.error) or not equal)

    def __str__(self) -> str:
        """A row of the table."""
        far = (self.differences.get(name) for name in TOLERANCE)
        figures = ("" if value is None else f"{value:.1e}" for value in far)
        verdict = f"VIOLATED {self.error}" if self.violated else self.case.differs or "equal"
        return _row(self.case.name, *figures, verdict)


def _row(name: str, *cells: str) -> str:
    return name.ljust(_WIDTH) + "".join(f"{cell:>11}" for cell in cells[:-1]) + f"  {cells[-1]}"


def selftest(
    families: Sequence[str] = FAMILIES, only: str = "", folder: Path | None = None, megatron: bool = False
) -> bool:
    """Run the equivalence suite on tiny models and print what it found; True if no equality is violated.

    ``families`` are those of tiny checkpoints that see. ``only`` cases with that in their name run; an empty
    ``folder`` keeps the runs and their log. With ``megatron`` the cases are `megatron_cases`.

    Raises:
        SwiftGrpoExtError: A family or case is unknown, or the folder is not empty.
    """
    every = list(megatron_cases() if megatron else cases())
    chosen = [case for case in every if only in case.name]
    seeing = [name for name, tiny in TINY.items() if tiny.vision]
    unknown = [family for family in families if family not in seeing]
    if unknown or not chosen:
        what, known = (unknown[0], seeing) if unknown else (only, [case.name for case in every])
        raise SwiftGrpoExtError(f"selftest knows no {what!r}", fix=f"one of: {'; '.join(known)}")
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise SwiftGrpoExtError("selftest needs an empty folder", where=str(folder), fix="another --folder")
    violated = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = made_folder(folder or Path(temporary), "--folder").resolve()
        for family in families:
            print(_row(f"tiny {family}: largest differences", *TOLERANCE, "verdict"))
            for comparison in _findings(family, chosen, root):
                violated += comparison.violated
                print(comparison, flush=True)
    covered = f"Families compared: {', '.join(families)}, of {len(seeing)}."
    print(f"{violated} equalities are VIOLATED." if violated else "No equality is violated.", covered)
    return not violated


def _findings(family: str, chosen: Sequence[Case], root: Path) -> Iterator[Comparison]:
    with _quiet(root / f"{family}.log"):
        megatron = any(case.megatron for case in chosen)
        # Two ranks share the heads of keys and values.
        heads: dict[str, Any] = {"num_key_value_heads": 2} if megatron else {}
        model = testing.tiny_checkpoint(family, root / family / "model", **heads)
        rows = testing.digits_dataset(root / family / "digits", limit=32).train
        if megatron:  # all in each step: the engines draw them in different orders
            lines = rows.read_text(encoding="utf-8").splitlines(keepends=True)
            rows = rows.with_name("two.jsonl")
            rows.write_text("".join(lines[:2]), encoding="utf-8")
    for case in chosen:
        with _quiet(root / f"{family}.log"):
            found = find(case, Bench(model, rows, root / family))
        yield found


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """What ms-swift says goes to a file."""
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        logging.getLogger("swift").propagate = False
        yield


def find(case: Case, bench: Bench) -> Comparison:
    """Run a case. An error of a run is a comparison like any other: the rest of the table goes on."""
    folder = bench.folder / "".join(char if char.isalnum() else "_" for char in case.name)
    try:
        one = _run(bench, case, case.one, folder / "one")
        if case.other is None:
            return Comparison(case, {name: one.measured.get(name, math.nan) for name in case.measures})
        checkpoint = one.folder / f"checkpoint-{case.resume}" if case.resume else None
        other = _run(bench, case, case.other, folder / "other", case.ranks, checkpoint, case.megatron)
        measures = differences(one, other, bench.model, skip=case.resume)
        if case.megatron:
            # Megatron logs a mean over the tokens of a micro-batch, not over rows. The loss has the KL, too.
            del measures["kl"]
        return Comparison(case, measures)
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, OSError, HostRunError) as error:
        return Comparison(case, error=f"{type(error).__name__}: {error}".splitlines()[0][:160])


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
    from safetensors.torch import load_file

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
    if ranks > 1 or megatron:
        plugins.append(folder / "ext_selftest.py")
        plugins[1].write_text(PLUGIN, encoding="utf-8")
    chosen = {**BASE, "save_steps": options.get("max_steps", BASE["max_steps"]), **options}
    if checkpoint is not None:
        chosen["resume_from_checkpoint"] = checkpoint
    if megatron:
        chosen |= MEGATRON
    arguments = testing.grpo_arguments(bench.model, bench.dataset, folder, external_plugins=plugins, **chosen)
    off = (os.environ.get(DISABLE), case.disabled, "callbacks.report")
    env = {DISABLE: ",".join(filter(None, off))}
    measured: dict[str, float] = {}
    if megatron:  # kernels of single precision would round factors to 10 bits
        env |= {"CUDA_VISIBLE_DEVICES": os.environ.get(DEVICES, "0,1"), "NVIDIA_TF32_OVERRIDE": "0"}
    if ranks > 1 or megatron:
        testing.run_swift("rlhf", arguments, env, ranks=ranks, timeout=900, megatron=megatron)
    else:
        register()  # it does so once per process, so a host put back to before would stay without
        from swift_grpo_ext.testing.selftest.plugin import installed

        with installed("reference" in case.measures) as found:
            testing.run_in_process("rlhf", arguments, env)
            measured |= found
    steps = [row for row in testing.read_logging(folder) if "loss" in row]
    measured["clipped"] = max(row.get("clip_ratio/region_mean", math.nan) for row in steps)
    return Result(steps, testing.newest_version(folder), measured)
