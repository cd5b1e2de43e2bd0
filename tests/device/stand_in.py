"""Lets transformers, accelerate and ms-swift choose the made-up device where they would choose CUDA."""

import os
import sys

from tests.device import made_up


def stand_in_for_cuda() -> None:
    """Import what chooses a device, and have it choose this one; before a trainer is built."""
    import accelerate.accelerator
    import accelerate.state
    import transformers.training_args as training_args
    from torch.nn.parallel import DistributedDataParallel

    os.environ["ACCELERATE_TORCH_DEVICE"] = str(made_up.DEVICE)
    if "LOCAL_RANK" in os.environ:
        several = ("gloo", accelerate.state.DistributedType.MULTI_GPU)
        accelerate.state.PartialState._prepare_backend = lambda *_: several
        wrap = DistributedDataParallel.__init__
        DistributedDataParallel.__init__ = lambda self, module, device_ids=None, output_device=None, **more: (
            wrap(self, module, [0], 0, **more)
        )
    accelerate.accelerator.is_bf16_available = training_args.is_torch_bf16_gpu_available = lambda *_: True
    training_args.TrainingArguments.device = property(lambda self: (self._setup_devices, made_up.DEVICE)[1])
    import swift.pipelines  # noqa: F401
    import swift.rlhf_trainers.grpo_trainer  # noqa: F401

    have_ms_swift_choose()


def have_ms_swift_choose() -> None:
    """Replace ms-swift's functions that name the device, in all of its modules that are imported."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("swift."):
            for name in {"get_device", "get_current_device"} & vars(module).keys():
                setattr(module, name, lambda *_, **__: str(made_up.DEVICE))
