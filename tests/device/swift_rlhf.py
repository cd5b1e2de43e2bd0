"""Runs of `swift rlhf` on the made-up device, one after the other in this process, with real rollouts.

    python tests/device/swift_rlhf.py RUNS.jsonl        (under torchrun for more ranks)

Each line is an object: ``words`` of a command, ``variables`` of the environment, and, where they are wanted, a ``limit``
of the device in bytes, or a ``phase`` in which no allocation succeeds, so many ``times``, on one ``rank`` or on all.
Phases are ``rollout``, ``inputs`` (the batch's way to the device), ``tower``, ``reference`` (passes without gradients),
``policy``, ``loss``, ``backward`` and ``optimizer``. Prints a line ``ENDED {...}`` for each run.
"""

import contextlib
import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.device import made_up  # noqa: E402  (before torch is asked for devices)
from tests.device.phases import Phases  # noqa: E402
from tests.device.stand_in import stand_in_for_cuda  # noqa: E402


def run(
    words: list[str],
    variables: dict[str, str],
    limit: int = 0,
    phase: str = "",
    times: int = 1,
    rank: str = "",
) -> dict[str, Any]:
    """One run: its error as its user sees it, what our lines said, sums of the weights, and the peaks."""
    from swift.pipelines.train.rlhf import SwiftRLHF

    class OnDevice(SwiftRLHF):
        def train(self, trainer: Any) -> Any:
            Phases(phase, times, rank).watch(trainer)
            trained = super().train(trainer)
            weights.extend(float(p.double().abs().sum()) for p in trainer.model.parameters())
            return trained

    from swift.rlhf_trainers import GRPOTrainer

    from tests.trainer import many_rows

    told: list[str] = []
    weights: list[float] = []
    listener = logging.Handler()
    listener.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("swift").addHandler(listener)
    before, error, stack = dict(os.environ), "", ""
    os.environ.update(variables)
    made_up.ledger.reset()
    made_up.ledger.limit, made_up.ledger.full = limit, None
    try:
        made_up_turns = patch.object(GRPOTrainer, "_rollout", many_rows.rollout)
        with made_up_turns if "ROWS_OF" in variables else contextlib.nullcontext():
            OnDevice(words).main()
    except (Exception, SystemExit) as raised:
        from swift_grpo_ext.doctor.faults import in_one_line

        error, stack = f"{type(raised).__name__}: {raised}", traceback.format_exc()
        error = str(in_one_line(raised, raised.__traceback__) or error)
    finally:
        os.environ.clear()
        os.environ.update(before)
        made_up.ledger.limit = 0
        logging.getLogger("swift").removeHandler(listener)
    gc.collect()
    return {
        "error": error,
        "stack": stack,
        "told": [line for line in told if "swift-grpo-ext" in line],
        "weights": weights,
        "peaks": dict(made_up.ledger.peaks),
        "left": made_up.ledger.allocated,  # bytes that are still held
    }


def main() -> None:
    """Run what the file lists."""
    with made_up.present():  # ms-swift's decorators of inference mode are made while it is imported
        stand_in_for_cuda()
        for line in Path(sys.argv[1]).read_text().splitlines():
            print("\nENDED " + json.dumps(run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
