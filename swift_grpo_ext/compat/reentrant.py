"""A5: reentrant checkpointing under DDP, in any dtype."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch

TARGET = "swift.trainers.mixin:SwiftMixin._fix_gradient_checkpointing"


@patch(
    "A5",
    TARGET,
    fingerprint="self",
    probe=lambda: in_source(TARGET, "get('use_reentrant')"),  # an explicit one is passed on, also under DDP
    remove_when="ms-swift refuses use_reentrant true under DDP, or torch allows it",
    after="swift",
)
def fix(prepare: Callable[..., object], trainer: Any) -> None:
    """Use non-reentrant checkpointing under DDP, even if reentrant was requested."""
    from swift.utils import get_logger, is_dist

    chosen = trainer.args.gradient_checkpointing_kwargs or {}
    ddp = is_dist() and not trainer.is_deepspeed_enabled and not trainer.is_fsdp_enabled
    if ddp and chosen.get("use_reentrant"):
        get_logger().warning(
            "swift-grpo-ext: use_reentrant is set to false. Reentrant checkpointing runs parts of the "
            "backward pass twice, so under DDP a parameter is marked ready twice, in fp32 and fp16 as in "
            "bf16: another dtype does not help."
        )
        trainer.args.gradient_checkpointing_kwargs = {**chosen, "use_reentrant": False}
    prepare(trainer)
