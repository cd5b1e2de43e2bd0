"""Comparisons that depend neither on the processor nor on the number of threads.

Two ways of computing one thing are compared in double precision, where what is left of rounding is far below
any mistake. Below it, each is compared with double precision, and stock's own distance is the measure.
"""

import os
import shutil
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

DOUBLE = 1e-9  # of equal things computed in double precision; measured: 1e-15 to 5e-13


@contextmanager
def in_float64():
    """Whoever asks torch for single precision gets double, models that cast inside too."""
    single = torch.get_default_dtype()
    # Torch's table of what a checkpoint may hold is made once, and names dtypes: made in here it would be wrong.
    torch._weights_only_unpickler._get_allowed_globals()
    with pytest.MonkeyPatch.context() as patched:
        if find_spec("transformers.integrations.moe"):  # of transformers 5: experts in one grouped product
            patched.setattr("transformers.integrations.moe._can_use_grouped_mm", lambda *given: False)
        patched.setattr(torch, "float32", torch.float64)
        patched.setattr(torch, "float", torch.float64)
        patched.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(single)


def double_copy(checkpoint):
    """A checkpoint with the same weights in double precision, beside it: `in_float64` can load no other."""
    checkpoint = Path(checkpoint)
    folder = checkpoint.with_name(f"{checkpoint.name}-float64")
    if not folder.exists():
        copied = checkpoint.with_name(f"{folder.name}-{os.getpid()}")
        shutil.copytree(checkpoint, copied)
        for path in copied.glob("*.safetensors"):
            weights = {name: tensor.double() for name, tensor in load_file(path).items()}
            save_file(weights, path, metadata={"format": "pt"})
        config = copied / "config.json"
        text = config.read_text()
        for narrower in ("float32", "bfloat16"):
            text = text.replace(f'"{narrower}"', '"float64"')
        config.write_text(text)
        try:
            copied.rename(folder)
        except OSError:  # another worker was faster
            shutil.rmtree(copied)
    return folder
