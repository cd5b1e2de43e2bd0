"""What ranks agree on; and when one of them fails all end, within seconds, each with the first traceback."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from swift_grpo_ext.trainer.host import Host

POLL_SECONDS = 1.0
CONNECT_SECONDS = 30
HEARD_SECONDS = 5.0  # how long the failing rank waits for the others to hear of it
LAST_WORDS_SECONDS = 3.0  # and they for its own traceback to be out
HERE_SECONDS = 20.0  # how far apart ranks may be that fail alike
TEARDOWN_SECONDS = 30.0  # a failed process that hangs in its own teardown (a collective, a thread) is ended


def gathers_parameters(host: Host) -> bool:
    """True under ZeRO-3 and FSDP: every rank must call the same modules the same number of times."""
    plugin = host.accelerator.state.deepspeed_plugin
    return bool(host.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3))


def is_alone() -> bool:
    """True in a run of one rank."""
    return not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1


def agreed_max(value: int, device: torch.device) -> int:
    """The largest value of all ranks; a collective, so every rank must come here."""
    if is_alone():
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return int(shared)


@contextmanager
def ending_together() -> Iterator[None]:
    """Within it, an exception on one rank ends all ranks; on a single rank it does nothing.

    Without it a rank that raises leaves the others waiting in a collective until ``ddp_timeout``, and their
    logs tell of a lost connection instead of the cause.
    """
    if is_alone():
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
        # A thread that never holds up the process.
        self._watcher = threading.Thread(target=self._watch, name="swift-grpo-ext-failure", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """End the watch; a thread that is inside the store at the interpreter's end aborts the process."""
        self._over.set()
        self._watcher.join(HEARD_SECONDS)

    def tell(self, error: BaseException) -> None:
        """Publish a failure of this rank, unless another was first, and wait until all have heard of it."""
        self._over.set()
        text = "".join(traceback.format_exception(error))
        mine = json.dumps({"rank": self.rank, "traceback": text})
        try:
            first = json.loads(self.store.compare_set("failure", "", mine))
            if first["traceback"].rstrip().splitlines()[-1] != text.rstrip().splitlines()[-1]:
                self._say(first)
            # A rank that fails by itself has no watch any more, and needs no telling: all may fail as one.
            _wait(self.store, "heard", lambda heard: heard >= self.world_size, HEARD_SECONDS)
        except RuntimeError as lost:  # torch raises DistNetworkError and DistStoreError, both of this kind
            print(f"swift-grpo-ext: the other ranks could not be told ({lost})", file=sys.stderr)
        end = threading.Timer(TEARDOWN_SECONDS, os._exit, [1])
        end.daemon = True
        end.start()

    def _say(self, failure: dict[str, object]) -> None:
        text = (
            f"rank {failure['rank']} failed, so rank {self.rank} ends too. Its error:\n{failure['traceback']}"
        )
        print(f"swift-grpo-ext: {text}", file=sys.stderr, flush=True)

    def _watch(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                if not self.store.check(["failure"]):
                    continue
                failure = json.loads(self.store.get("failure"))
                self.store.add("heard", 1)
            except RuntimeError:  # the store's process is gone: the launcher ends the others
                return
            self._say(failure)
            time.sleep(LAST_WORDS_SECONDS)
            sys.stdout.flush()
            os._exit(1)


def all_ranks_are_here(where: str) -> bool:
    """Whether every rank comes to a place within seconds: asked of the job's store, without a collective."""
    if is_alone():
        return True
    store, ranks = _connect(), dist.get_world_size()
    # A place is come to more than once.
    return _wait(store, where, lambda here: here % ranks == 0, HERE_SECONDS)


def _wait(store: dist.Store, key: str, enough: Callable[[int], bool], seconds: float) -> bool:
    """Count this rank under a key, and wait until the count is enough; whether it came to be."""
    deadline = time.monotonic() + seconds
    count = store.add(key, 1)
    while not enough(count) and time.monotonic() < deadline:
        time.sleep(0.1)
        count = store.add(key, 0)
    return enough(count)


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
