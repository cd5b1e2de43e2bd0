"""Folders and files that are written to."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

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
        raise OutputFolderError(
            f"cannot write there: {problem}",
            where=f"{flag} {path}",
            fix="give a folder that can be written",
        )
    return path


@contextmanager
def claimed(folder: Path, writes: bool = True) -> Iterator[None]:
    """While this is open, no other run may claim a folder; ``writes`` says whether this process claims it.

    Where the file system has no locks, or nothing can be written, nobody is kept out.

    Raises:
        OutputFolderError: Another run has it: both would write their logs and checkpoints there.
    """
    with ExitStack() as stack:
        if writes:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _lock(stack, folder)
        yield


def _lock(stack: ExitStack, folder: Path) -> None:
    """Hold a lock in a folder as long as the stack is open.

    Raises:
        OutputFolderError: Another process holds it.
    """
    path = folder / ".swift_grpo_ext.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputFolderError(
            "another run writes its logs and checkpoints there",
            where=f"--output_dir {folder}",
            fix="another --output_dir, or --add_version true",
        ) from None
    stack.callback(path.unlink, missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, also after a kill, sees the old or the new one, never half of it."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def user_cache() -> Path:
    """Where what took long to find out is kept: ``$XDG_CACHE_HOME/swift-grpo-ext``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swift-grpo-ext"


def kept(path: Path, content: Any) -> Any:
    """Content that is written to the cache as JSON, as far as it can be."""
    with suppress(OSError):  # a folder that cannot be written: it is made again the next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content).encode())
    return content


def cached(path: Path) -> Any:
    """What the cache has; None for nothing that can be read."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
