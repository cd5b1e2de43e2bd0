"""The last checkpoint of a run that hangs, written while its main thread is stuck."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from pathlib import Path

from swift_grpo_ext.watch.phases import Phases
from swift_grpo_ext.watch.watched import Watched

SECONDS = 120.0  # that it may take; a thread that does not come to its end is left behind
_HALF_DONE = ("optimizer", "save")


def save_last_step(
    trainer: Watched, phases: Phases, also: Callable[[Path], None], seconds: float = SECONDS
) -> str:
    """Write a checkpoint of the last finished step, from a thread that does not train; says what was done.

    Not of weights in shards, which need all ranks to be saved, nor while the optimizer steps.
    """
    step = int(trainer.state.global_step)
    folder = Path(trainer.args.output_dir) / f"checkpoint-{step}"
    stuck = phases.now
    if reason := _why_not(trainer, stuck.phase, step, folder):
        return reason
    fresh = folder.with_name(f"unfinished-checkpoint-{step}")
    saving = ThreadPoolExecutor(1, "swift-grpo-ext last checkpoint").submit(_save, trainer, fresh, also)
    try:
        error = saving.exception(seconds)
    except TimeoutError:
        return f"saving step {step} took longer than {seconds:.0f} s and was given up"
    if error is not None:
        return f"saving step {step} failed: {type(error).__name__}: {error}"
    if phases.now != stuck:  # so an optimizer may have stepped meanwhile
        shutil.rmtree(fresh)
        return f"phase {stuck.phase} came to its end while step {step} was saved, so that is not kept"
    os.replace(fresh, folder)  # last, so that whoever looks for the newest checkpoint finds a whole one
    return f"step {step} is saved in {folder}"


def _why_not(trainer: Watched, phase: str, step: int, folder: Path) -> str:
    """Why nothing is to be saved; empty if something is."""
    sharded = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    reasons = {
        "no step was finished, so there is nothing to save": step == 0,
        f"step {step} was saved before": (folder / "trainer_state.json").is_file(),
        "weights in shards cannot be saved by one rank; the last checkpoint is what there is": sharded,
        f"phase {phase} leaves weights or files half changed, so they are not saved": phase in _HALF_DONE,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _save(trainer: Watched, folder: Path, also: Callable[[Path], None]) -> None:
    """What ms-swift saves, without its collectives."""
    trainer.save_model(str(folder), _internal_call=True)
    if not trainer.args.save_only_model:
        trainer._save_optimizer_and_scheduler(str(folder))
        trainer._save_scaler(str(folder))
        trainer._save_rng_state(str(folder))
    also(folder)
    trainer.state.save_to_json(str(folder / "trainer_state.json"))


class Turn:
    """A file for which the other ranks wait: a launcher kills all as soon as one has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> None:
        """Nothing is done yet in this run."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def done(self) -> None:
        """This rank has saved what can be saved."""
        with suppress(OSError):  # the others then wait for as long as saving may take
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()

    def wait(self, seconds: float = SECONDS) -> None:
        """Until the rank that saves is done, or the time is over."""
        deadline = time.monotonic() + seconds
        while not self._path.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
