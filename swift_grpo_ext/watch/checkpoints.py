"""Whole checkpoints: a partly written one is moved aside, and never resumed from."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swift_grpo_ext.errors import CheckpointError

SAVE_FAILED = os.EX_IOERR  # exit status of a run that could not write a checkpoint
_STATE = "trainer_state.json"  # what transformers writes last


class UnfinishedSaveError(CheckpointError):
    """A checkpoint could not be written."""


def is_whole(checkpoint: Path) -> bool:
    """True if a checkpoint was written completely."""
    try:
        json.loads((checkpoint / _STATE).read_bytes())
    except (OSError, ValueError):
        return False
    return True


def newest_whole(output_dir: Path) -> Path | None:
    """The whole checkpoint of the latest step in a folder; None without one."""
    steps = {folder.name.removeprefix("checkpoint-"): folder for folder in output_dir.glob("checkpoint-*")}
    whole = {int(step): folder for step, folder in steps.items() if step.isdigit() and is_whole(folder)}
    return whole[max(whole)] if whole else None


def _in_words(output_dir: Path) -> str:
    newest = newest_whole(output_dir)
    return f"the newest whole checkpoint is {newest}" if newest else "not one checkpoint is whole"


def require_whole(checkpoint: str | None) -> None:
    """Refuse to resume from a partly written checkpoint.

    Raises:
        CheckpointError: The folder lacks the file that is written last.
    """
    folder = Path(checkpoint) if checkpoint else None
    if folder and folder.is_dir() and not is_whole(folder):
        raise CheckpointError(
            f"the checkpoint is not whole: its {_STATE}, which is written last, is missing or damaged",
            where=f"--resume_from_checkpoint {folder}",
            fix=f"{_in_words(folder.parent)}; --resume_only_model true takes the weights alone",
        )


@contextmanager
def saving(output_dir: Path, step: int, first: bool) -> Iterator[None]:
    """Context in which the checkpoint of a step is written; the first rank moves a partial one aside.

    Raises:
        UnfinishedSaveError: It could not be written, for example because the disk is full.
    """
    folder = output_dir / f"checkpoint-{step}"
    try:
        yield
    except Exception as error:
        aside = folder.with_name(f"unfinished-{folder.name}")
        if first and folder.is_dir() and not is_whole(folder):
            os.replace(folder, aside)
        raise UnfinishedSaveError(
            f"the checkpoint of step {step} could not be written: {type(error).__name__}: {error}",
            where=str(aside),
            fix=f"fix that (a full disk: free space), then --resume_from_checkpoint: {_in_words(output_dir)}",
        ) from error


@contextmanager
def exit_status_of_saving() -> Iterator[None]:
    """Context in which an unfinished checkpoint ends the process with `SAVE_FAILED`.

    Raises:
        SystemExit: With that status, after printing the newest whole checkpoint.
    """
    try:
        yield
    except UnfinishedSaveError as error:
        print(error, file=sys.stderr)
        raise SystemExit(SAVE_FAILED) from error
