"""F18: ``--streaming true``: each completion of a group answers another prompt."""

from collections.abc import Callable

from swift_grpo_ext.compat.patch import in_source, patch

_STOCK = "trl.trainer.grpo_trainer:GRPOTrainer.get_train_dataloader"


@patch(
    "F18",
    "swift.rlhf_trainers.rlhf_mixin:RLHFTrainerMixin.get_train_dataloader",
    fingerprint="self, *args, **kwargs",
    # Its sampler repeats rows, of datasets with a length alone.
    probe=lambda: in_source(_STOCK, "IterableDataset", "_get_train_sampler"),
    remove_when="ms-swift repeats the rows of streams",
)
def fix(stock: Callable[..., object], trainer: object, *args: object, **kwargs: object) -> object:
    """In GRPO, repeat the rows of a stream as the sampler repeats those of a dataset."""
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
    from torch.utils.data import IterableDataset

    if not isinstance(trainer, GRPOTrainer) or not isinstance(trainer.train_dataset, IterableDataset):
        return stock(trainer, *args, **kwargs)
    from swift_grpo_ext.models.streams import grouped_dataloader

    return grouped_dataloader(trainer)
