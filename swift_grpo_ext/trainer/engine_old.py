"""The engine's log-probs as old ones: spares the old pass of users who asked for rollout importance sampling.

ms-swift weighs the loss of several updates by ``pi_old / pi_engine``, cut at a threshold, beside the ratio
``pi / pi_old``. Where engine and trainer agree the first is 1, and the engine's log-probs, which are of the
tokens that it sampled, are the old ones. With a single update there is no old pass, and ms-swift weighs by
``pi / pi_engine`` as it is.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.trainer.features import old_readers
from swift_grpo_ext.trainer.host import Host


def engine_logps(host: Host, check: EngineCheck, grpo_batch: Any) -> Tensor | None:
    """``(batch, keep)`` old log-probs of a micro-batch; None where a pass has to compute them.

    Args:
        host: The trainer. Every rank comes here for its old pass.
        check: Of its engine: the two must agree.
        grpo_batch: The micro-batch.
    """
    if not _asked(host) or not check.agrees():
        return None
    found: Tensor | None = grpo_batch.rollout_per_token_logps
    return None if agreed_max(int(found is None), host.accelerator.device) else found


def _asked(host: Host) -> bool:
    """Importance sampling is on, nothing else reads old log-probs, and no filter changes the engine's."""
    args, off = host.args, host.disable_rollout_importance_sampling
    if off or disabled("trainer.engine_old_logps") or host.rollout_importance_sampling_mode is None:
        return False
    filtered = (args.top_p or 1) < 1 or (args.top_k or 0) > 0 or bool(args.min_p)
    if filtered or host.log_rollout_offpolicy_metrics:
        return False
    return host.old_policy() and not old_readers(host)
