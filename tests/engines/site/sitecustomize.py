"""Lets a torchvision that was built for CUDA be imported beside a torch that was built for the CPU.

Its compiled operators cannot be loaded then, and torchvision stops at the first one that it gives a shape
function. The two that it does so for are declared here. Nothing on the way of an image needs them.

Python imports a module of this name when it starts, so the processes of an engine have it as well.
"""

from wrapt import register_post_import_hook

MISSING = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare(_module: object) -> None:
    import torch
    from torchvision.extension import _has_ops

    if not _has_ops():
        for name, schema in MISSING.items():
            torch.library.define(f"torchvision::{name}", schema)


register_post_import_hook(declare, "torchvision.extension")
