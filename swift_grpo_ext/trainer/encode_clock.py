"""How long a rollout server takes to encode requests: it tells the trainer with its first answer."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.swap import swapped

if TYPE_CHECKING:
    from swift.infer_engine import InferEngine
    from swift.infer_engine.protocol import RolloutOutput

ENGINE = "swift.infer_engine.grpo_vllm_engine"
_KEY = "swift_grpo_ext_encode_seconds"


def time_servers(module: ModuleType) -> None:
    """Let vLLM engines of this process tell; those that encode while they generate have nothing to tell."""
    kind: Any = getattr(module, "GRPOVllmEngine", None)
    if not hasattr(kind, "_batch_encode"):
        return
    infer = kind.infer

    @functools.wraps(infer)
    def timed_infer(engine: InferEngine, *args: object, **kwargs: object) -> object:
        encode, spent = engine._batch_encode, []

        def timed_encode(*args: object, **kwargs: object) -> object:
            start = time.perf_counter()
            try:
                return encode(*args, **kwargs)
            finally:
                spent.append(time.perf_counter() - start)

        with swapped(engine, "_batch_encode", timed_encode):
            outputs = infer(engine, *args, **kwargs)
        if outputs and spent:
            outputs[0].rollout_infos[_KEY] = sum(spent)
        return outputs

    kind.infer = timed_infer


def seconds_of(outputs: Sequence[RolloutOutput]) -> float:
    """Seconds that encoding took, taken out of rollout outputs; of servers side by side the longest."""
    return max((output.rollout_infos.pop(_KEY, 0.0) for output in outputs), default=0.0)
