"""Triton's interpreter, for kernels that otherwise only a GPU runs; to be imported before they are.

Two things stand in its way: the autotuner asks for a driver, so the first configuration is taken; and numbers
that a kernel is called with are plain ones, which have no ``.to``, so some modules are read with a cast in its
place. A kernel's text is read from its file again, so the changed copy lies on disk.
"""

import importlib.util
import os
import re
import sys
import tempfile
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
from triton.runtime import autotuner

# Of modules, the numbers in their kernels that are cast.
NUMBERS = {
    "fla.ops.common.chunk_delta_h": "i_t",
    "liger_kernel.ops.swiglu": "gate_multiplier",
}


def first_configuration(tuner, *args, **kwargs):
    """In the place of measuring all: there is no clock worth reading."""
    return tuner.fn.run(*args, **{**kwargs, **tuner.configs[0].all_kwargs()})


class TakesNumbers(MetaPathFinder):
    """Finds the modules of `NUMBERS`, changed as said above."""

    def find_spec(self, name, path=None, target=None):
        if name not in NUMBERS:
            return None
        spec = PathFinder.find_spec(name, path)
        text, times = re.subn(rf"\b({NUMBERS[name]})\.to\(", r"tl.cast(\1, ", Path(spec.origin).read_text())
        assert times, f"nothing to change in {name}: look at tests/group/interpreter.py"
        changed = Path(tempfile.mkdtemp()) / Path(spec.origin).name
        changed.write_text(text)
        return importlib.util.spec_from_file_location(name, changed)


autotuner.Autotuner.run = first_configuration
sys.meta_path.insert(0, TakesNumbers())
