"""Folders and files that are written to."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from swift_grpo_ext.errors import EnvironmentMismatchError, OutputFolderError

PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """A file that comes with the package: beside it in a checkout, inside it in a wheel.

    Raises:
        EnvironmentMismatchError: The installation lacks it.
    """
    for folder in (PACKAGE, PACKAGE.parent):
        if (folder / name).is_file():
            return folder / name
    raise EnvironmentMismatchError(
        f"{name} is missing",
        where=str(PACKAGE),
        fix="reinstall: pip install --force-reinstall --no-deps swift-grpo-ext",
    )


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
    path = folder / ".swift_grpo_ext.lock"
    with ExitStack() as stack:
        try:
            if writes:
                folder.mkdir(parents=True, exist_ok=True)
                fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.callback(path.unlink, missing_ok=True)
        except BlockingIOError:
            raise OutputFolderError(
                "another run writes its logs and checkpoints there",
                where=f"--output_dir {folder}",
                fix="another --output_dir, or --add_version true",
            ) from None
        except OSError:
            pass
        yield


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old or the new one, never half of it, even after a kill."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def user_cache() -> Path:
    """Folder for results that took long to find: ``$XDG_CACHE_HOME/swift-grpo-ext``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swift-grpo-ext"


def kept(path: Path, content: Any) -> Any:
    """Write content to the cache as JSON, if that is possible, and return it."""
    with suppress(OSError):  # an unwritable folder: the content is made again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content).encode())
    return content


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None
