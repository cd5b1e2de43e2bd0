"""The console: one line for what is logged. ``logging.jsonl`` and the trackers get ms-swift's dictionary.

Without a progress bar: the line says how far the run is, and a bar would hide warnings.
"""

import shutil
import sys
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.ms_swift.hf import PrinterCallbackNew, ProgressCallbackNew
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.watch.step_line import WIDTH, log_line

_PRINTERS_MODULE = sys.modules[PrinterCallbackNew.__module__]


def terminal_width() -> int:
    """Characters of a line: the terminal's width, at most `WIDTH`; `WIDTH` in a file."""
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns) if sys.stdout.isatty() else WIDTH


def print_lines(host: Host, held_out: Callable[[], float | None]) -> None:
    """Put a line a step in the place of the dictionary that ms-swift prints, and of its progress bar.

    ``held_out`` gives the newest mean over held-out rows.
    """
    stock = (host.pop_callback(ProgressCallbackNew), host.pop_callback(PrinterCallbackNew))
    if any(stock):
        host.add_callback(_Printer(held_out, several=len(host.reward_func_names) > 1))


class _Printer(PrinterCallbackNew):
    """ms-swift's printer, which prints the line."""

    def __init__(self, held_out: Callable[[], float | None], several: bool) -> None:
        super().__init__()
        self._held_out = held_out
        self._several = several  # rewards

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log, and print the line."""

        def print_line(dictionary: Any, flush: bool) -> None:
            line = log_line(dictionary, self._held_out(), terminal_width(), self._several)
            if line:
                print(line, flush=flush)

        with swapped(_PRINTERS_MODULE, "print", print_line):
            super().on_log(args, state, control, logs, **kwargs)
