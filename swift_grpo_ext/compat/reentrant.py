"""A5: reentrant checkpointing under DDP, in any dtype."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS

TARGET = "swift.trainers.mixin:SwiftMixin._fix_gradient_checkpointing"


def probe() -> bool:
    """True if the host passes an explicit ``use_reentrant`` on, also under DDP."""
    from swift.trainers.mixin import SwiftMixin

    return "get('use_reentrant')" in inspect.getsource(SwiftMixin._fix_gradient_checkpointing)


def fix(prepare: Callable[..., object]) -> Callable[..., object]:
    """Take the non-reentrant kind under DDP, whatever was asked for."""

    @functools.wraps(prepare)
    def _fix_gradient_checkpointing(trainer: Any) -> None:
        from swift.utils import get_logger, is_dist

        chosen = trainer.args.gradient_checkpointing_kwargs or {}
        ddp = is_dist() and not trainer.is_deepspeed_enabled and not trainer.is_fsdp_enabled
        if ddp and chosen.get("use_reentrant"):
            get_logger().warning(
                "swift-grpo-ext: use_reentrant is set to false. Reentrant checkpointing runs parts of the "
                "backward pass twice, so under DDP a parameter is marked ready twice, in fp32 and fp16 as in "
                "bf16: another dtype is no cure."
            )
            trainer.args.gradient_checkpointing_kwargs = {**chosen, "use_reentrant": False}
        prepare(trainer)

    return _fix_gradient_checkpointing


PATCH = Patch(
    defect=DEFECTS["A5"],
    target=TARGET,
    fingerprint="self",
    probe=probe,
    fix=fix,
    remove_when="ms-swift refuses use_reentrant true under DDP, or torch allows it",
)
