"""Who needs the old pass, and what spares it: the engine's log-probs, where importance sampling is asked for.

ms-swift weighs the loss of several updates by ``pi_old / pi_engine``, cut at a threshold, beside the ratio
``pi / pi_old``. Where engine and trainer agree the first is 1, and the engine's log-probs, which are of the
tokens that it sampled, are the old ones. With a single update there is no old pass, and ms-swift weighs by
``pi / pi_engine`` as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch

TEACHER = "a teacher is compared with it; without teacher"


def engine_logps(host: Host, check: EngineCheck, grpo_batch: GRPOBatch) -> Tensor | None:
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


def old_reason(host: Host) -> str:
    """Who needs old log-probs that are not the policy's own (D1 of docs/findings.md)."""
    several = {
        f"--num_iterations {host.num_iterations}; --num_iterations 1": host.num_iterations > 1,
        f"--steps_per_generation {host.args.steps_per_generation} serves several updates; "
        f"--steps_per_generation {host.args.gradient_accumulation_steps}": host.old_policy(),
    }
    return next(iter([*old_readers(host), *(why for why, reads in several.items() if reads)]), "")


def old_readers(host: Host) -> list[str]:
    """Who needs old log-probs beside the ratio of several updates, and what would change that."""
    args = host.args
    columns = getattr(host.train_dataset, "column_names", None)  # None: a stream that does not tell
    readers = {
        # With upstream/skip-old-logps applied, the first pass over a micro-batch is the reference's.
        "ms-swift leaves it out itself": hasattr(host, "_needs_old_logps"),
        "the KL in rewards reads it; --kl_in_reward false": host.kl_in_reward and host.beta,
        **teachers(host),
        "the liger loss corrects rollouts by it; --use_liger_kernel false": args.use_liger_kernel
        and args.rollout_importance_sampling_mode,
        "the dataset does not tell its columns; --streaming false": columns is None,
        TEACHER + " columns": {"teacher_prompt", "teacher_images"} & set(columns or ()),
    }
    return [why for why, reads in readers.items() if reads]


def teachers(host: Host) -> dict[str, bool]:
    """Ways to have a teacher, and whether this run has it."""
    return {
        TEACHER: bool(host._has_teacher_explicit()),
        "--advantage_reweight rlsd; without it": host.advantage_reweight == "rlsd",
        "the SDAR loss reads it; --sdar_loss_coef 0": host.sdar_loss_coef > 0,
    }
