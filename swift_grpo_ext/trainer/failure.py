"""One rank fails, all ranks end: within seconds, each with the first traceback in its own log."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

POLL_SECONDS = 1.0
CONNECT_SECONDS = 30
# How long the failing rank waits for the others to hear of it, and they for its own traceback to be out.
HEARD_SECONDS = 5.0
LAST_WORDS_SECONDS = 3.0
# How far apart ranks may be that fail alike.
HERE_SECONDS = 20.0
# A failed process that hangs in its own teardown (a collective, a thread) is ended after this.
TEARDOWN_SECONDS = 30.0


@contextmanager
def ending_together() -> Iterator[None]:
    """Within it, an exception on one rank ends all ranks; on a single rank it does nothing.

    Without it a rank that raises leaves the others waiting in a collective until ``ddp_timeout``, and their
    logs tell of a lost connection instead of the cause.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        yield
        return
    try:
        store = _connect()
    except (KeyError, RuntimeError) as error:
        print(
            f"swift-grpo-ext: no way to the job's store ({type(error).__name__}: {error}), so ranks cannot "
            "tell each other of a failure: they wait for --ddp_timeout",
            file=sys.stderr,
        )
        yield
        return
    news = News(store, dist.get_rank(), dist.get_world_size())
    news.watch()
    try:
        yield
    except BaseException as error:
        news.tell(error)
        raise
    finally:
        news.stop()


class News:
    """Tells the other ranks of a failure, and ends this process when one of them has failed.

    It has a connection of its own to the job's key-value store: the process group's may be busy.
    """

    def __init__(self, store: dist.Store, rank: int, world_size: int) -> None:
        self.store, self.rank, self.world_size = store, rank, world_size
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="swift-grpo-ext-failure", daemon=True)

    def watch(self) -> None:
        """Look for a failure of another rank every second, in a thread that never holds up the process."""
        self._watcher.start()

    def stop(self) -> None:
        """End the watch; a thread that is inside the store at the interpreter's end aborts the process."""
        self._over.set()
        self._watcher.join(HEARD_SECONDS)

    def tell(self, error: BaseException) -> None:
        """Publish a failure of this rank, unless another was first, and wait until all have heard of it."""
        self._over.set()
        text = "".join(traceback.format_exception(error))
        mine = {"rank": self.rank, "traceback": text}
        try:
            first = json.loads(self.store.compare_set("failure", "", json.dumps(mine)))
            if _last_line(first["traceback"]) != _last_line(text):
                print(obituary(first, self.rank), file=sys.stderr, flush=True)
            # A rank that fails by itself has no watch any more, and needs no telling: all may fail as one.
            heard = self.store.add("heard", 1)
            deadline = time.monotonic() + HEARD_SECONDS
            while heard < self.world_size and time.monotonic() < deadline:
                time.sleep(0.1)
                heard = self.store.add("heard", 0)
        except RuntimeError as lost:  # torch raises DistNetworkError and DistStoreError, both of this kind
            print(f"swift-grpo-ext: the other ranks could not be told ({lost})", file=sys.stderr)
        end = threading.Timer(TEARDOWN_SECONDS, os._exit, [1])
        end.daemon = True
        end.start()

    def _watch(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                if not self.store.check(["failure"]):
                    continue
                failure = json.loads(self.store.get("failure"))
                self.store.add("heard", 1)
            except RuntimeError:  # the store's process is gone: the launcher ends the others
                return
            print(obituary(failure, self.rank), file=sys.stderr, flush=True)
            time.sleep(LAST_WORDS_SECONDS)
            sys.stdout.flush()
            os._exit(1)


def all_ranks_are_here(where: str) -> bool:
    """Whether every rank comes to a place within seconds: asked of the job's store, without a collective."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return True
    store, ranks = _connect(), dist.get_world_size()
    deadline = time.monotonic() + HERE_SECONDS
    here = store.add(where, 1)
    while here % ranks and time.monotonic() < deadline:  # a place is come to more than once
        time.sleep(0.1)
        here = store.add(where, 0)
    return not here % ranks


def obituary(failure: dict[str, object], rank: int) -> str:
    """What a rank says that ends because another failed."""
    return (
        f"swift-grpo-ext: rank {failure['rank']} failed, so rank {rank} ends too. Its error:\n"
        f"{failure['traceback']}"
    )


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _connect() -> dist.Store:
    """A client of the store that the launcher or rank 0 serves, under keys of this attempt of this job."""
    client = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=CONNECT_SECONDS),
    )
    job = os.environ.get("TORCHELASTIC_RUN_ID", "job")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"swift_grpo_ext/{job}/{attempt}", client)
