"""Lets a torchvision that was built for CUDA be imported beside a torch that was built for the CPU.

Its compiled operators cannot be loaded then, and torchvision stops at the first one that it gives a shape
function. The two that it does so for are declared here. Nothing on the way of an image needs them.

Python imports a module of this name when it starts, so the processes of an engine have it as well.
"""

from swift_grpo_ext.compat.imports import when_imported

MISSING = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare() -> None:
    import torch
    from torchvision.extension import _has_ops

    if not _has_ops():
        for name, schema in MISSING.items():
            torch.library.define(f"torchvision::{name}", schema)


when_imported("torchvision.extension", declare)
