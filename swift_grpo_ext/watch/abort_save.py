"""The last checkpoint of a run that hangs, written while its main thread is stuck."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from pathlib import Path

from swift_grpo_ext.watch.phases import Phases
from swift_grpo_ext.watch.watched import Watched

SECONDS = 120.0
"""How long it may take; a thread that does not come to its end is left behind."""
_HALF_DONE = ("optimizer", "save")


def save_last_step(
    trainer: Watched, phases: Phases, also: Callable[[Path], None], seconds: float = SECONDS
) -> str:
    """Write a checkpoint of the last finished step, from a thread that does not train; says what was done.

    The step in which the run hangs is lost. Weights that DeepSpeed or FSDP cut into shards need all ranks
    to be saved, and while an optimizer steps its weights are of two steps: then nothing is written.
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
    if step == 0:
        return "no step was finished, so there is nothing to save"
    if (folder / "trainer_state.json").is_file():
        return f"step {step} was saved before"
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return "weights in shards cannot be saved by one rank; the last checkpoint is what there is"
    if phase in _HALF_DONE:
        return f"phase {phase} leaves weights or files half changed, so they are not saved"
    return ""


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


def end_now(status: int) -> None:
    """End this process at once, whatever its threads do."""
    sys.stderr.flush()
    os._exit(status)
