"""The console: one line for what is logged. ``logging.jsonl`` and the trackers get ms-swift's dictionary."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from swift_grpo_ext.ms_swift.hf import PrinterCallbackNew, ProgressCallbackNew
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.watch.step_line import WIDTH, log_line

_PRINTERS_MODULE = sys.modules[PrinterCallbackNew.__module__]
HeldOutReward = Callable[[], float | None]


def terminal_width() -> int:
    """Characters of a line: those of the terminal, but at most `WIDTH`; so many in a file, too."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns) if sys.stdout.isatty() else WIDTH


def print_lines(host: Host, held_out: HeldOutReward) -> None:
    """Put a line a step in the place of the dictionary that ms-swift prints."""
    if host.pop_callback(ProgressCallbackNew) is not None:
        host.add_callback(_Bar(held_out))
    elif host.pop_callback(PrinterCallbackNew) is not None:
        host.add_callback(_Printer(held_out))


class _Lines:
    """Writes the line of what is logged."""

    def __init__(self, held_out: HeldOutReward) -> None:
        super().__init__()
        self._held_out = held_out

    def _say(self, logs: Any, write: Callable[[str], None]) -> None:
        line = log_line(logs, self._held_out(), terminal_width())
        if line:
            write(line)


class _Bar(_Lines, ProgressCallbackNew):
    """ms-swift's progress bar, which writes lines above itself."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log; what is written above the bar is the line."""
        bar = self.training_bar
        if bar is None:
            super().on_log(args, state, control, logs, **kwargs)
            return
        write = bar.write
        with swapped(bar, "write", lambda _dictionary: self._say(logs, write)):
            super().on_log(args, state, control, logs, **kwargs)


class _Printer(_Lines, PrinterCallbackNew):
    """ms-swift's printer, for ``--disable_tqdm true``."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log; what is printed is the line."""

        def print_line(dictionary: Any, flush: bool) -> None:
            self._say(dictionary, partial(print, flush=flush))

        with swapped(_PRINTERS_MODULE, "print", print_line):
            super().on_log(args, state, control, logs, **kwargs)
