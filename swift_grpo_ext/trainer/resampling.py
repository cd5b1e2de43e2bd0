"""Dynamic sampling that looks at every batch it has generated.

Groups of equal rewards give way to others (DAPO, arXiv 2503.14476). ms-swift's loop ends with a new batch
that nobody looks at, so ``--max_resample_times 1`` never helps. Here each of the new batches counts.
"""

from __future__ import annotations

from itertools import compress
from typing import Any

import torch
from accelerate.utils import gather_object
from swift.rlhf_trainers.utils import get_even_process_data
from swift.utils import get_logger
from torch import Tensor

from swift_grpo_ext.trainer.host import Host

logger = get_logger()


def resampled(host: Host, samples: list[object], rewards_per_func: Tensor) -> tuple[list[Any], Tensor]:
    """This rank's samples, and all ranks' rewards, of groups that can be compared, if enough are found."""
    wanted = host.args.generation_batch_size
    uneven = [host.dynamic_num_samples]  # of each batch: a server may return more than it was asked for
    found: list[Any] = []
    rewards: list[Tensor] = []
    batch = samples, rewards_per_func
    for new in range(host.max_resample_times + 1):
        if new:
            fresh = host._rollout_samples(next(host.dynamic_resample_iterator))
            batch = fresh, host._compute_rewards_per_func(fresh)
            uneven.append(host.dynamic_num_samples)
        differ = host.compute_std(*batch) > 0
        found += compress(gather_object(batch[0]), differ.tolist())
        rewards.append(batch[1][differ])
        if len(found) >= wanted:
            host.dynamic_num_samples = any(uneven)
            return get_even_process_data(host, found[:wanted]), torch.cat(rewards)[:wanted]
    logger.warning(
        f"swift-grpo-ext: {len(found)} of {wanted} completions are in groups whose rewards differ, after "
        f"{host.max_resample_times} new batches (max_resample_times): the step takes the first batch"
    )
    host.dynamic_num_samples = uneven[0]
    return samples, rewards_per_func
