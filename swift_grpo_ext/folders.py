"""Folders and files that are written to."""

import os
from pathlib import Path

from swift_grpo_ext.errors import OutputFolderError


def made_folder(path: Path, flag: str) -> Path:
    """Make a folder that an option named, before the work is done, and return it.

    Raises:
        OutputFolderError: It cannot be made, or nothing can be written into it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        what = f"cannot write there: {problem}"
        fix = "give a folder that can be written"
        raise OutputFolderError(what, where=f"{flag} {path}", fix=fix)
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, also after a kill, sees the old or the new one, never half of it."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(content)
    os.replace(fresh, path)
