"""How much main memory a run's prepared images may hold, and in which floats they are kept."""

import os

import torch

from swift_grpo_ext.host_memory import free_bytes
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.models.template import STORE_MIB, VisionTemplate
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.host import Host, base_model

SHARE = 8  # of the free memory of a node, for the images of all its ranks
LEAST_MIB, MOST_MIB = 64, 8192  # of one rank
_MIB = 2**20


def bound_prepared_images(host: Host) -> None:
    """Bound the store of prepared images by the memory that is free now: the least of all ranks.

    Not where the user has set a bound. Pixels are kept in the floats of the tower, which makes them of any
    others first. Where the template is ms-swift's own nothing is kept.
    """
    template = host.template
    if not isinstance(template, VisionTemplate):
        return
    template.pixel_dtype = _dtype_of_tower(host)
    if current_settings().image_store_mib is None:
        bound = store_mebibytes(free_bytes(), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        template.images.store.bound(-agreed_max(-bound, host.accelerator.device) * _MIB)


def _dtype_of_tower(host: Host) -> torch.dtype:
    base = base_model(host, host.model)
    family = family_of(base.config)
    assert family is not None, f"no facts of {base.config.model_type}"
    parameters = base.get_submodule(family.vision_tower[0]).parameters()
    return next(parameter.dtype for parameter in parameters if parameter.is_floating_point())


def store_mebibytes(free: int | None, ranks: int) -> int:
    """MiB that one of a node's ranks may hold, of ``free`` bytes of the node; None: nobody can tell."""
    if free is None:
        return STORE_MIB
    return max(LEAST_MIB, min(MOST_MIB, free // SHARE // ranks // _MIB))
