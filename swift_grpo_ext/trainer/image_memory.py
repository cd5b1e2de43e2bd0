"""How much main memory a run's prepared images may hold, and in which floats they are kept."""

import os

import psutil
import torch

from swift_grpo_ext.models.template import VisionTemplate
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.host import Host, tower_modules

SHARE = 8  # of the free memory of a node, for the images of all its ranks
MOST_MIB = 8192  # of a node: in a container, less may be free than the machine reports
LEAST_MIB = 64  # of one rank
_MIB = 2**20


def bound_prepared_images(host: Host) -> None:
    """Bound the store of prepared images by the memory that is free now: the least of all ranks.

    Pixels are kept in the floating-point type of the tower, to which it would convert any other. Where the
    template is ms-swift's own nothing is kept.
    """
    template = host.template
    if not isinstance(template, VisionTemplate):
        return
    template.pixel_dtype = _dtype_of_tower(host)
    free = psutil.virtual_memory().available
    bound = store_mebibytes(free, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    template.images.store.bound(-agreed_max(-bound, host.accelerator.device) * _MIB)


def _dtype_of_tower(host: Host) -> torch.dtype:
    parameters = tower_modules(host, host.model)[0].parameters()
    return next(parameter.dtype for parameter in parameters if parameter.is_floating_point())


def store_mebibytes(free: int, ranks: int) -> int:
    """MiB that one of a node's ranks may hold, of ``free`` bytes of the node."""
    return max(LEAST_MIB, min(MOST_MIB, free // SHARE // _MIB) // ranks)
