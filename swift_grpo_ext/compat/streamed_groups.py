"""F18: ``--streaming true``: each completion of a group answers another prompt."""

from __future__ import annotations

import functools
from collections.abc import Callable

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS

TARGET = "swift.rlhf_trainers.rlhf_mixin:RLHFTrainerMixin.get_train_dataloader"


def probe() -> bool:
    """True if the dataloader repeats rows of datasets with a length alone."""
    import inspect

    from trl.trainer.grpo_trainer import GRPOTrainer

    source = inspect.getsource(GRPOTrainer.get_train_dataloader)
    return "IterableDataset" in source and "_get_train_sampler" in source


def fix(get_train_dataloader: Callable[..., object]) -> Callable[..., object]:
    """In GRPO, repeat the rows of a stream as the sampler repeats those of a dataset."""

    @functools.wraps(get_train_dataloader)
    def with_groups(trainer: object, *args: object, **kwargs: object) -> object:
        from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
        from torch.utils.data import IterableDataset

        if not isinstance(trainer, GRPOTrainer) or not isinstance(trainer.train_dataset, IterableDataset):
            return get_train_dataloader(trainer, *args, **kwargs)
        from swift_grpo_ext.models.streams import grouped_dataloader

        return grouped_dataloader(trainer)

    return with_groups


PATCH = Patch(
    defect=DEFECTS["F18"],
    target=TARGET,
    fingerprint="self, *args, **kwargs",
    probe=probe,
    fix=fix,
    remove_when="ms-swift repeats the rows of streams",
    after="swift.rlhf_trainers.rlhf_mixin",
)
