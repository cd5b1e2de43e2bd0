"""Folders and files that are written to."""

from __future__ import annotations

import os
from pathlib import Path

from swift_grpo_ext.errors import OutputFolderError


def made_folder(path: Path, flag: str) -> Path:
    """Make a folder, before the work whose results it is to hold.

    Args:
        path: The folder; there already or not.
        flag: The option that named it.

    Raises:
        OutputFolderError: It cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        raise OutputFolderError(
            f"cannot write there: {problem}", where=f"{flag} {path}", fix="give a folder that can be written"
        )
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, also after a kill, sees the old or the new one, never half of it."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(content)
    os.replace(fresh, path)
