"""Agreement between ranks; if one fails, all end within seconds, each with the first traceback."""

import hashlib
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
LAST_WORDS_SECONDS = 3.0  # how long they wait for its own traceback to be printed
HERE_SECONDS = 20.0  # how far apart ranks that fail alike may be
TEARDOWN_SECONDS = 30.0  # a failed process that hangs in its own teardown (a collective, a thread) is ended


def gathers_parameters(host: Host) -> bool:
    """True under ZeRO-3 and FSDP: every rank must call the same modules the same number of times."""
    plugin = host.accelerator.state.deepspeed_plugin
    return bool(host.is_fsdp_enabled or (plugin is not None and plugin.zero_stage == 3))


def waits_for_gradients() -> bool:
    """True where a wrapper may wait for the gradient of every parameter that trains.

    A launcher's single rank has one, too: ``NPROC_PER_NODE=1`` makes a process group, and so DDP.
    """
    return dist.is_available() and dist.is_initialized()


def is_alone() -> bool:
    """True in a run of one rank."""
    return not waits_for_gradients() or dist.get_world_size() == 1


def agreed_max(value: int, device: torch.device) -> int:
    """The largest value of all ranks; a collective, so every rank must come here."""
    if is_alone():
        return value
    shared = torch.tensor(value, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return int(shared)


def all_equal(text: str, device: torch.device, group: dist.ProcessGroup) -> bool:
    """True if all ranks of a group have the same text: one collective of 16 bytes, none for a single rank."""
    if is_alone() or dist.get_world_size(group) == 1:
        return True
    digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
    ends = torch.tensor([digest, -digest], device=device)
    dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=group)
    return int(ends.sum()) == 0  # the largest is the smallest


@contextmanager
def ending_together() -> Iterator[None]:
    """Abort every rank when one raises: the others would wait for it until ``ddp_timeout``."""
    if is_alone():
        yield
        return
    try:
        store = _connect()
    except (KeyError, RuntimeError) as error:
        print(
            f"swift-grpo-ext: cannot reach the job's TCPStore ({type(error).__name__}: {error}): a failing "
            "rank is not announced, the others wait for --ddp_timeout",
            file=sys.stderr,
        )
        yield
        return
    over = threading.Event()
    # A thread that never holds up the process.
    watcher = threading.Thread(target=_watch, args=(store, over), name="swift-grpo-ext-failure", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException as error:
        over.set()
        _tell(store, error)
        raise
    finally:
        # A thread that is inside the store at the interpreter's end aborts the process.
        over.set()
        watcher.join(HEARD_SECONDS)


def _tell(store: dist.Store, error: BaseException) -> None:
    """Publish a failure of this rank, unless another was first, and wait until all have heard of it."""
    text = "".join(traceback.format_exception(error))
    mine = json.dumps({"rank": dist.get_rank(), "traceback": text})
    try:
        first = json.loads(store.compare_set("failure", "", mine))
        if first["traceback"].rstrip().splitlines()[-1] != text.rstrip().splitlines()[-1]:
            _say(first)
        # A failing rank, whose watch has ended, counts itself: all may fail at the same time.
        _wait(store, "heard", lambda heard: heard >= dist.get_world_size(), HEARD_SECONDS)
    except RuntimeError as lost:  # torch raises DistNetworkError and DistStoreError, both of this kind
        print(f"swift-grpo-ext: cannot tell the other ranks of this failure ({lost})", file=sys.stderr)
    end = threading.Timer(TEARDOWN_SECONDS, os._exit, [1])
    end.daemon = True
    end.start()


def _watch(store: dist.Store, over: threading.Event) -> None:
    """Look every second whether another rank has failed, and end this process then."""
    while not over.wait(POLL_SECONDS):
        try:
            if not store.check(["failure"]):
                continue
            failure = json.loads(store.get("failure"))
            store.add("heard", 1)
        except RuntimeError:  # the store's process is gone: the launcher ends the others
            return
        _say(failure)
        time.sleep(LAST_WORDS_SECONDS)
        sys.stdout.flush()
        os._exit(1)


def _say(failure: dict[str, object]) -> None:
    # Asked of the launcher, not of the process group, which may be gone by now.
    text = f"rank {failure['rank']} failed, so rank {os.environ['RANK']} ends too. Its error:"
    print(f"swift-grpo-ext: {text}\n{failure['traceback']}", file=sys.stderr, flush=True)


def all_ranks_are_here(where: str) -> bool:
    """True if every rank comes to a place within seconds: asked of the job's store, without a collective."""
    if is_alone():
        return True
    store = _connect()
    ranks = dist.get_world_size()
    # Ranks come to a place more than once.
    return _wait(store, where, lambda here: here % ranks == 0, HERE_SECONDS)


def _wait(store: dist.Store, key: str, enough: Callable[[int], bool], seconds: float) -> bool:
    """Count this rank under a key, and wait until the count is enough; False if time runs out."""
    deadline = time.monotonic() + seconds
    count = store.add(key, 1)
    while not enough(count) and time.monotonic() < deadline:
        time.sleep(0.1)
        count = store.add(key, 0)
    return enough(count)


def _connect() -> dist.Store:
    """A connection of our own to the job's store: the process group's may be busy."""
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
