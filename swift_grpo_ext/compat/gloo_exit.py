"""F25: a run on gloo that has finished successfully sometimes ends with SIGABRT."""

import atexit
import sys
from collections.abc import Callable

from swift_grpo_ext.compat.patch import patch


def probe() -> bool:
    """True if this torch has gloo: no release destroys gloo's groups when the process exits."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_gloo_available()


@patch(
    "F25",
    "torch.distributed.distributed_c10d:destroy_process_group",
    fingerprint="group=",
    probe=probe,
    remove_when="a torch that ends gloo's threads at exit is the oldest one supported",
    wraps=True,
)
def fix(destroy_process_group: Callable[..., object]) -> Callable[..., object]:
    """Destroy gloo's groups before the interpreter shuts down, which ends their threads."""

    def leave() -> None:
        import torch.distributed as dist

        # A failed process may have collectives in flight that the other ranks never join.
        failed = getattr(sys, "last_value", None) is not None
        if not failed and dist.is_initialized() and dist.get_backend() == "gloo":
            destroy_process_group()

    atexit.register(leave)
    return destroy_process_group
