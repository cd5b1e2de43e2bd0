"""Which micro-batches have an old pass: those whose old log-probs somebody reads (D1 of docs/findings.md).

Until the first update after a rollout the policy is the old one. A micro-batch of that update needs no pass
of its own, and where one is made for others (a KL penalty in rewards, a teacher), the loss does not take it:
it has other dropout masks and other sums, so a ratio of it is not 1 (F12). In further iterations the old
log-probs are those of the first policy pass.

Later micro-batches are spared where importance sampling is asked for: ms-swift weighs their loss by
``pi_old / pi_engine``, cut at a threshold, beside the ratio ``pi / pi_old``. Where engine and trainer agree
the first is 1, and the engine's log-probs, which are of the tokens that it sampled, are the old ones.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat, zip_longest

import torch
from accelerate.utils import gather_object
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.batches import Known
from swift_grpo_ext.trainer.distributed import agreed_max
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample

TEACHER = "a teacher is compared with it; without teacher"
_TEACHER_COLUMNS = {"teacher_prompt", "teacher_images"}
_EVERY = 2**31  # more than a generation batch has


class OldPass:
    """Leaves out old passes that nobody needs."""

    def __init__(self, host: Host, sparing: bool) -> None:
        self._host, self._sparing = host, sparing
        self._own = not disabled("trainer.skip_old_logps")
        self._told: Iterator[bool] = iter(())
        self._before_update = 0  # micro-batches of the first update that are yet to come

    def begin(self, samples: Sequence[VisionSample]) -> None:
        """A generation batch is about to be prepared from samples."""
        host = self._host
        if host.template.sequence_parallel_size > 1:  # the chunks are of several ranks
            self._told = repeat(any(told_a_teacher(host, [samples])))
        else:
            self._told = iter(told_a_teacher(host, host.split_by_mini_batches(samples)))
        self._before_update = before_update(host) if host.model.training else _EVERY

    def spare(
        self, known: Known, grpo_batch: GRPOBatch, check: EngineCheck
    ) -> tuple[Tensor | None, None] | None:
        """What stands for the old pass over the next micro-batch; None where it has to be made."""
        spared = self.is_spared(known)
        found = None if spared else engine_logps(self._host, check, grpo_batch)
        if not spared and found is None:
            return None
        known.skipped += 1
        return found, None

    def is_spared(self, known: Known) -> bool:
        """Whether the old pass over the next micro-batch is needless; asked once for each."""
        self._before_update -= 1
        known.first_update = self._before_update >= 0
        told = next(self._told, False)
        return self._sparing and known.first_update and not told

    def note(self, known: Known, grpo_batch: GRPOBatch, logps: Tensor) -> None:
        """A pass is done: the policy's first one, ``(batch, keep)``, is also the old one."""
        if not (self._own and self._host.model.training and torch.is_grad_enabled()):
            return
        if known.first_update or not self._host.old_policy():
            known.first_update = False
            grpo_batch.old_per_token_logps = logps.detach()


def before_update(host: Host) -> int:
    """Micro-batches at the start of a generation batch whose first policy pass comes before any update."""
    if not host.old_policy():
        return _EVERY
    args = host.args
    aligned = args.steps_per_generation % args.gradient_accumulation_steps == 0
    if not aligned or host.template.sequence_parallel_size > 1:
        return 0
    if host.num_iterations > 1 and (host.dynamic_num_samples or host.use_liger_loss):
        return 0  # the loss is computed on parts of the micro-batch, or without its log-probs
    return int(args.gradient_accumulation_steps)


def told_a_teacher(host: Host, chunks: Sequence[Sequence[VisionSample]]) -> list[bool]:
    """For each micro-batch, whether a row of any rank tells a teacher something; mostly a collective."""
    if not _may_tell_a_teacher(host):
        return [False] * len(chunks)
    # ms-swift 4.5 has no images of its own for a teacher.
    told = lambda one: bool(one.teacher_prompt) or getattr(one, "teacher_images", None) is not None  # noqa: E731
    here = [any(map(told, chunk)) for chunk in chunks]
    return [any(ranks) for ranks in zip_longest(*gather_object([here]))]


def _may_tell_a_teacher(host: Host) -> bool:
    dataset = host.train_dataset if host.model.training else host.eval_dataset
    columns = getattr(dataset, "column_names", None)
    return not isinstance(columns, (list, tuple)) or bool(_TEACHER_COLUMNS & set(columns))


def engine_logps(host: Host, check: EngineCheck, grpo_batch: GRPOBatch) -> Tensor | None:
    """``(batch, keep)`` old log-probs, or None where a pass has to compute them. Every rank comes here."""
    if not _asked(host) or not check.agrees():
        return None
    found: Tensor | None = grpo_batch.rollout_per_token_logps
    return None if agreed_max(int(found is None), host.accelerator.device) else found


def _asked(host: Host) -> bool:
    """Importance sampling is on, nothing else reads old log-probs, and no filter changes the engine's."""
    args, off = host.args, host.disable_rollout_importance_sampling or disabled("trainer.engine_old_logps")
    if off or host.rollout_importance_sampling_mode is None or host.log_rollout_offpolicy_metrics:
        return False
    filtered = (args.top_p or 1) < 1 or (args.top_k or 0) > 0 or bool(args.min_p)
    return host.old_policy() and not (filtered or _may_tell_a_teacher(host) or old_readers(host))


def old_reason(host: Host) -> str:
    """Who needs old log-probs that are not the policy's own (D1 of docs/findings.md)."""
    within = f"updates begin within rollouts; --steps_per_generation {host.args.gradient_accumulation_steps}"
    return next(iter(old_readers(host)), "" if before_update(host) else within)


def old_readers(host: Host) -> list[str]:
    """Who needs old log-probs beside the ratio of several updates, and what would change that."""
    args = host.args
    readers = {
        # With upstream/skip-old-logps applied, the first pass over a micro-batch is the reference's.
        "ms-swift leaves it out itself": hasattr(host, "_needs_old_logps"),
        "the KL in rewards reads it; --kl_in_reward false": host.kl_in_reward and host.beta,
        **teachers(host),
        "the liger loss corrects rollouts by it; --use_liger_kernel false": args.use_liger_kernel
        and args.rollout_importance_sampling_mode,
    }
    return [why for why, reads in readers.items() if reads]


def teachers(host: Host) -> dict[str, bool]:
    """Ways to have a teacher, and whether this run has it."""
    return {
        TEACHER: bool(host._has_teacher_explicit()),
        "--advantage_reweight rlsd; without it": host.advantage_reweight == "rlsd",
        "the SDAR loss reads it; --sdar_loss_coef 0": host.sdar_loss_coef > 0,
    }
