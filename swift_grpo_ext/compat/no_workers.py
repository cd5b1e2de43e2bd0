"""ms-swift 4.5.3 sets persistent dataloader workers by default, which torch refuses without workers."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch

TARGET = "swift.trainers.arguments:TrainArgumentsMixin.__post_init__"


def probe() -> bool:
    """True if workers persist by default, without a check that there are any."""
    from swift.trainers.arguments import TrainArgumentsMixin

    persist = bool(TrainArgumentsMixin.dataloader_persistent_workers)
    return persist and not in_source(TARGET, "dataloader_persistent_workers")


@patch(
    "no-workers",
    TARGET,
    fingerprint="self",
    probe=probe,
    remove_when="ms-swift 4.5 is no longer supported",
)
def fix(post_init: Callable[..., None], arguments: Any) -> None:
    """Turn persistent workers off when there are no workers."""
    post_init(arguments)
    if arguments.dataloader_num_workers == 0:
        arguments.dataloader_persistent_workers = False
