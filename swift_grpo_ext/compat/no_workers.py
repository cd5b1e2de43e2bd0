"""ms-swift 4.5.3 keeps dataloader workers alive by default, and torch refuses that where there are none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS

TARGET = "swift.trainers.arguments:TrainArgumentsMixin.__post_init__"


def probe() -> bool:
    """True if workers persist by default, and nobody looks whether there are any."""
    from swift.trainers.arguments import TrainArgumentsMixin

    looks = "dataloader_persistent_workers" in inspect.getsource(TrainArgumentsMixin.__post_init__)
    return bool(TrainArgumentsMixin.dataloader_persistent_workers) and not looks


def fix(post_init: Callable[..., None]) -> Callable[..., None]:
    """Without workers, none persist."""

    @functools.wraps(post_init)
    def __post_init__(arguments: Any) -> None:
        post_init(arguments)
        if arguments.dataloader_num_workers == 0:
            arguments.dataloader_persistent_workers = False

    return __post_init__


PATCH = Patch(
    defect=DEFECTS["no-workers"],
    target=TARGET,
    fingerprint="self",
    probe=probe,
    fix=fix,
    remove_when="ms-swift 4.5 is no longer supported",
    after="swift.trainers.arguments",
)
