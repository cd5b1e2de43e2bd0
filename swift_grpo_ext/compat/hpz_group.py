"""ZeRO-3 with hpZ cannot load a second model: the reference model of full GRPO stops at start-up."""

import functools
from collections.abc import Callable

from swift_grpo_ext.compat.patch import in_source, patch

TARGET = "deepspeed.utils.groups:_create_zero_param_parallel_group"


@patch(
    "hpz-second-model",
    TARGET,
    fingerprint="group_size",
    probe=lambda: in_source(TARGET, "is already initialized"),
    remove_when="a DeepSpeed with that change is the oldest one supported",
    wraps=True,
)
def fix(create_group: Callable[..., object]) -> Callable[..., object]:
    """Reuse the group that the first model created: it depends only on the ranks and the size."""
    made: list[int] = []

    @functools.wraps(create_group)
    def once(group_size: int) -> None:
        if made != [group_size]:
            create_group(group_size)
            made[:] = [group_size]

    return once
