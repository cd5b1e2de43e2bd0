"""Host waits of one update phase on a GPU, ours against stock: each empties the GPU's queue of kernels.

    python benchmarks/host_waits.py --size 3b --device cuda --group 8 --image-tokens 1000 --json OUT

CUDA names each call that makes the host wait (``torch.cuda.set_sync_debug_mode("warn")``). It is counted
by the innermost line of this package, else of ms-swift or TRL, with the innermost line of all beside it. The
first update, which has the self-check, is counted apart from the second. The rollout is made up and left out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from bench_measure import machine
from bench_trainers import made_up_rollouts, run_update
from update_phase import arguments_of_benchmark, build_both, case_of, report

ROOMS = (
    "swift_grpo_ext",
    "swift",
    "trl",
    "transformers",
)  # in whose name a wait is counted, the first that has one


def place_of_wait(stack: traceback.StackSummary) -> str:
    """The innermost line of the first room that has one, and where the wait itself stands."""
    aside = ("/benchmarks/", "/warnings.py")
    frames = [frame for frame in stack if not any(part in frame.filename for part in aside)]
    inner = frames[-1]
    for room in ROOMS:
        own = [frame for frame in frames if f"/{room}/" in frame.filename]
        if own:
            file = own[-1].filename.rsplit(f"/{room}/", 1)[1]
            asked = f"{Path(inner.filename).name}:{inner.lineno}"
            return f"{room}/{file}:{own[-1].lineno} <- {asked} {inner.line or ''}"[:180]
    return f"{inner.filename}:{inner.lineno}"


@contextmanager
def counted_waits(waits: Counter[str]) -> Iterator[None]:
    """Count what makes the host wait while this is open.

    Args:
        waits: Place to number of waits; added to.
    """
    before = warnings.showwarning

    def count(message: Warning | str, *rest: Any, **named: Any) -> None:
        if "synchronizing CUDA" in str(message):
            waits[place_of_wait(traceback.extract_stack()[:-1])] += 1
        else:
            before(message, *rest, **named)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = count
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
            warnings.showwarning = before


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Waits of the first and of the second update of both trainers, by place."""
    case = case_of(asked)
    found: dict[str, Any] = {}
    for name, trainer in build_both(asked, case, folder).items():
        for turn in ("first", "second"):
            waits: Counter[str] = Counter()
            made_up_rollouts(trainer, case, 0)
            trainer.model.zero_grad(set_to_none=True)
            step = trainer.training_step

            def watched(*args: Any, step: Any = step, waits: Counter[str] = waits, **kwargs: Any) -> Any:
                with counted_waits(waits):
                    return step(*args, **kwargs)

            trainer.training_step = watched
            try:
                run_update(trainer)
            finally:
                del trainer.training_step
            found[f"{name} {turn}"] = {"waits": waits.total(), "places": dict(waits.most_common())}
        device = trainer.accelerator.device
    return {**found, "machine": machine(device)}


def main() -> None:
    asked = arguments_of_benchmark(__doc__)
    if asked.device != "cuda":
        raise SystemExit("host waits are what CUDA names: --device cuda (tests/device counts on a CPU)")
    os.environ.setdefault("PYTHONWARNINGS", "always")
    with tempfile.TemporaryDirectory() as folder:
        report(asked, measure(asked, Path(folder)))


if __name__ == "__main__":
    main()
