"""The vision tower of a run: which ranks wait for each other in it, and the image that keeps them in step."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from PIL import Image

from swift_grpo_ext.group.media import PIXELS
from swift_grpo_ext.group.tower_calls import TowerCalls
from swift_grpo_ext.group.vision import Images, assign_media, outside_of_language
from swift_grpo_ext.models.families import VisionFamily
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.trainer.distributed import agreed_max, gathers_parameters, waits_for_gradients
from swift_grpo_ext.trainer.host import Host, base_model

_SIDE = 32  # pixels
_ROW = {
    "messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "."}],
}


class RunTower:
    """The tower of the policy and the reference, in the passes of one run."""

    def __init__(self, host: Host, family: VisionFamily) -> None:
        self._host = host
        base = base_model(host, host.model)
        self._trains = any(outside_of_language(base))
        self.blank: Callable[[], Images] = cache(lambda: blank_image(host, family))
        agree = self.agree if gathers_parameters(host) else None
        if agree and (reason := family.lacks.get("zero3")):
            get_logger().warning(
                f"swift-grpo-ext: {reason}. As it is, a run whose rows have different numbers of images ends "
                "or hangs in its first steps"
            )
        self.calls = TowerCalls(family, self.blank, agree, self._trains and waits_for_gradients())

    def agree(self, calls: int) -> int:
        """Calls of the tower, which all ranks have to make where its parameters are gathered for them."""
        return agreed_max(calls, self._host.accelerator.device) if gathers_parameters(self._host) else calls

    def end_micro_batch(self) -> None:
        """After a step's last micro-batch, leave a trained tower without a picture unchanged.

        Not under DeepSpeed, which keeps gradients in buffers of its own.
        """
        host = self._host
        if self._trains and host.accelerator.sync_gradients and not host.is_deepspeed_enabled:
            base = base_model(host, host.model)
            self.calls.drop_idle_gradients(base, lambda seen: agreed_max(seen, host.accelerator.device))


def blank_image(host: Host, family: VisionFamily) -> Images:
    """A small black image, prepared as the template prepares any other; of a grid the smallest part."""
    template = host.template
    row = {**_ROW, "images": [Image.new("RGB", (_SIDE, _SIDE))]}
    encoded = template.encode(row, return_length=True)  # which rows without padding are joined by
    images = assign_media(template.data_collator([encoded]), family.media)[PIXELS]
    tower = base_model(host, host.model).get_submodule(family.vision_tower[0])
    side = getattr(tower, "spatial_merge_size", None)
    if side is None or images.grid_name != "image_grid_thw":
        return images
    grid = torch.tensor([[1, side, side]])
    parts = (images.parts[0][: side**2],)
    return replace(images, parts=parts, grid=grid, sizes=(side**2,), tokens=(1,), keys=((0,),))
