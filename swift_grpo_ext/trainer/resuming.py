"""Resuming: the checkpoint's weights are really loaded, and rows come in the order of an uninterrupted run.

transformers 5 saves Qwen2.5-VL under its published names, not the module's, and its ``Trainer`` passes over
names that do not fit, with a warning: the run would go on with the weights of the start. ``from_pretrained``
translates names.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import safe_open
from torch import nn
from torch.utils.data import Sampler

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.ms_swift.hf import RepeatSampler
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.trainer.host import Host, unwrapped


def load_translated(host: Host, checkpoint: str, model: nn.Module | None = None) -> bool:
    """Load a full checkpoint whose names are not the module's own; False for others, left to ms-swift.

    Raises:
        OutputFolderError: The checkpoint is of another model.
    """
    target = unwrapped(model if model is not None else host.model)
    sharded = host.is_deepspeed_enabled or host.is_fsdp_enabled
    saved: set[str] = set()
    for path in Path(checkpoint).glob("model*.safetensors"):
        with safe_open(str(path), "pt") as file:
            saved.update(file.keys())
    if sharded or isinstance(target, PeftModel) or not saved or saved <= set(target.state_dict()):
        return False
    loaded = type(target).from_pretrained(checkpoint, dtype=target.dtype)
    missing, unknown = target.load_state_dict(loaded.state_dict(), strict=False)
    if missing or unknown:
        raise OutputFolderError(
            f"{len(missing)} weights are missing and {len(unknown)} unknown, the first: "
            f"{[*missing, *unknown][0]}",
            where=checkpoint,
            fix="resume with the model that the run was started with",
        )
    get_logger().info(f"swift-grpo-ext: loaded {len(saved)} weights of {checkpoint} under translated names")
    return True


class SamplerOfEpochs(Sampler[int]):
    """TRL's sampler, whose generator has drawn the orders of the epochs that are done.

    It is seeded once and shuffles anew in each epoch, so that a run which is resumed in its second would
    repeat the order of its first: rows twice, others never.
    """

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        self._sampler = sampler
        self._epoch = epoch  # number of the epoch that begins, from 0
        self._drawn = 0  # orders drawn so far

    def __iter__(self) -> Iterator[int]:
        for _ in range(self._epoch() - self._drawn):
            torch.randperm(self._sampler.num_samples, generator=self._sampler.generator)
        self._drawn = max(self._drawn, self._epoch()) + 1
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


def over_epochs(sampler: Sampler[int] | None, host: Host) -> Sampler[int] | None:
    """The sampler of rows for training, whose order in each epoch is that of an uninterrupted run."""
    if not isinstance(sampler, RepeatSampler) or not sampler.shuffle:
        return sampler
    return SamplerOfEpochs(sampler, lambda: int(host.state.epoch or 0))
