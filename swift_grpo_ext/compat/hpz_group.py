"""ZeRO-3 with hpZ cannot load a second model: the reference model of full GRPO stops at start-up."""

from collections.abc import Callable

from swift_grpo_ext.compat.patch import Patch, around, in_source
from swift_grpo_ext.defects import DEFECTS

TARGET = "deepspeed.utils.groups:_create_zero_param_parallel_group"


def fix(create_group: Callable[..., object]) -> Callable[..., object]:
    """Keep the group that the first model made: it depends on the ranks and the size alone.

    A second model with another size still meets the assertion.
    """
    made: list[int] = []

    @around
    def once(create: Callable[..., object], group_size: int) -> object:
        if made == [group_size]:
            return None
        result = create(group_size)
        made[:] = [group_size]
        return result

    return once(create_group)


PATCH = Patch(
    defect=DEFECTS["hpz-second-model"],
    target=TARGET,
    fingerprint="group_size",
    probe=lambda: in_source(TARGET, "is already initialized"),
    fix=fix,
    remove_when="a DeepSpeed with that change is the oldest one supported",
)
