"""Early end of a run: on a signal, after the current step."""

import atexit
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from types import FrameType

import psutil

# After Ctrl-C the command dies after this process, with 22 lines of traceback. Wait up to a minute for both.
_WHEN_BOTH_HAVE_ENDED = """
for _ in $(seq 600); do kill -0 "$1" || kill -0 "$2" || break; sleep 0.1; done 2> /dev/null
printf '%s\n' "$0" >&2
"""


class EndRequest:
    """Remembers a request to end: the first ends all ranks after the step, a second one this process now."""

    def __init__(self) -> None:
        self.reason = ""  # a signal's name, or another reason to end; empty without a request
        self._before: dict[int, signal._HANDLER] = {}
        self._above = _up_to_swift()
        self._wakeup = -1

    @property
    def exit_status(self) -> int:
        """Exit status of a process ended by a signal, as in a shell: 128 + the signal's number."""
        asked = signal.Signals.__members__.get(self.reason, signal.SIGTERM)
        return 128 + asked

    def listen(self) -> None:
        """Install the signal handlers. Only the main thread may; in other threads this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._take)
        if len(self._above) == 1:  # the command is this process's direct parent
            self._hold_the_launcher_on_ctrl_c(self._above[0])

    def leave(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._wakeup >= 0:
            os.close(signal.set_wakeup_fd(-1))  # which ends the thread that reads the other end
            self._wakeup = -1

    def say_last(self, text: str) -> None:
        """Print the text below all further output of this process and of the command that started it."""
        if not self._above:
            print(text, file=sys.stderr, flush=True)
            return
        ends = map(str, (os.getpid(), self._above[-1].pid))
        subprocess.Popen(["sh", "-c", _WHEN_BOTH_HAVE_ENDED, text, *ends], start_new_session=True)

    def look_at_launcher(self) -> None:
        """Ask to end if the command or ``torchrun`` has ended: neither tells its child. Thread-safe."""
        if not self.reason and not all(map(_lives, self._above)):
            self._ask("the end of the swift command")

    def _hold_the_launcher_on_ctrl_c(self, launcher: psutil.Process) -> None:
        """Let a thread (the main one may be in a long call) suspend the command until this process exits.

        It would kill this process after a quarter of a second; after ``fg`` it continues, and does so.
        """
        reading, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

        def watch() -> None:
            with os.fdopen(reading, "rb", buffering=0) as pipe, suppress(psutil.Error):
                if any(number == signal.SIGINT for (number,) in iter(lambda: pipe.read(1), b"")):
                    launcher.suspend()
                    atexit.register(_let_go, launcher)

        threading.Thread(target=watch, name="swift-grpo-ext Ctrl-C", daemon=True).start()

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self.reason:
            self.leave()
            signal.raise_signal(number)
        else:
            self._ask(signal.Signals(number).name)

    def _ask(self, reason: str) -> None:
        self.reason = reason
        text = f"{reason}: the run ends after the current step, if any, is saved; a second signal ends it now"
        with suppress(OSError, ValueError):  # stderr may be closed; a signal may interrupt `print`
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"swift-grpo-ext: {text}\n".encode())


def _let_go(launcher: psutil.Process) -> None:
    with suppress(psutil.Error):
        launcher.resume()


def _up_to_swift() -> list[psutil.Process]:
    """Parents of this process up to the ``swift`` command, which is last; empty without such a command."""
    with suppress(psutil.Error):  # a parent of another user, or one that has just ended
        parents = psutil.Process().parents()[:2]  # the command itself, or torchrun and the command
        for number, process in enumerate(parents, start=1):
            if any(re.search(r"(^|/)swift$|swift[./]cli[./]main(\.py)?$", w) for w in process.cmdline()[:3]):
                return parents[:number]
    return []


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
