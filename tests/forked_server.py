"""The server of `forked`: imports the libraries once, then forks the ranks of each run that it is told of."""

import atexit
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

ALONE_SECONDS = 15.0  # that ranks have to end by themselves when another has failed
TICK = 0.02
# Not our own package: what it does when it is imported is part of a run.
LIBRARIES = ("swift.pipelines.train.rlhf", "swift.pipelines.train.sft", "swift.rlhf_trainers", "deepspeed")


def _serve(listening: socket.socket) -> None:
    """Import once; then a process for each order, which forks its ranks and waits for them."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the ranks neither copy these objects nor look through them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those processes
    tests = os.getppid()
    listening.settimeout(5)
    while os.getppid() == tests:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        connection.setblocking(True)
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(connection)
            os._exit(0)
        connection.close()


def _supervise(connection: socket.socket) -> None:
    """Do what one order says, and answer with how it ended."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 1)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    order = json.loads(data)
    if descriptors:
        _work(connection, order, descriptors[0])
    else:
        _train(connection, order)


def _work(connection: socket.socket, order: dict, descriptor: int) -> None:
    """A child of a reward's pool, which reads its jobs from a pipe; it ends with the connection."""
    pid = os.fork()
    if not pid:
        connection.close()
        os.setsid()
        os.dup2(2, 1)
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = ["-c", str(descriptor), str(os.getppid()), *order["words"]]
        sys.path.insert(0, "")  # which the program takes away again
        exec(order["program"], {"__name__": "__main__"})
        os._exit(0)
    os.close(descriptor)
    connection.sendall(f"{pid}\n".encode())
    while True:
        if select.select([connection], [], [], TICK)[0]:  # closed: nobody waits for it any more
            os.kill(pid, signal.SIGKILL)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            return


def _train(connection: socket.socket, order: dict) -> None:
    processes = [_forked_rank(rank, order) for rank in range(len(order["logs"]))]
    codes: dict[int, int] = {}
    deadline = time.monotonic() + order["timeout"]
    late = False
    while len(codes) < len(processes):
        for pid in [pid for pid in processes if pid not in codes]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
                if codes[pid] != 0:
                    deadline = min(deadline, time.monotonic() + ALONE_SECONDS)
        if time.monotonic() > deadline:
            late = not any(codes.values())
            for pid in processes:
                if pid not in codes:
                    os.killpg(pid, signal.SIGKILL)
        time.sleep(TICK)
    answer = {"codes": [codes[pid] for pid in processes], "late": late}
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _forked_rank(rank: int, order: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        log = os.open(order["logs"][rank], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = _rank(rank, order)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _rank(rank: int, order: dict) -> int:
    os.environ.clear()
    os.environ.update(order["env"], RANK=str(rank), LOCAL_RANK=str(rank))
    os.chdir(order["cwd"])
    sys.path[:] = order["path"]
    program = order["program"]
    sys.argv = [program, *order["words"]]
    if rank > 0:  # as ms-swift has it at its import
        logging.getLogger("swift").setLevel(logging.ERROR)
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # torch's: the lines of a traceback begin with the rank
        code = 1
    threading._shutdown()  # what Python does before it exits, however the program has ended
    atexit._run_exitfuncs()
    return code


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
