"""Which micro-batches have an old pass: those whose old log-probs somebody reads (D1 of docs/findings.md).

Until the first update after a rollout the policy is the old one. A micro-batch of that update needs no pass
of its own, and where one is made for others (a KL penalty in rewards, a teacher), the loss does not take it:
it has other dropout masks and other sums, so a ratio of it is not 1 (F12). In further iterations the old
log-probs are those of the first policy pass.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat, zip_longest

import torch
from accelerate.utils import gather_object

from swift_grpo_ext.ms_swift.shared import GRPOBatch
from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.batches import BatchRecord
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import PerToken, VisionSample

_TEACHER_COLUMNS = {"teacher_prompt", "teacher_images"}
_EVERY = 2**31  # more than a generation batch has


class OldPass:
    """Leaves out old passes that nobody needs."""

    def __init__(self, host: Host, skips: bool) -> None:
        self._host = host
        self._skips = skips  # passes that nobody needs
        self._own = not disabled("trainer.skip_old_logps")
        self._teacher_input: Iterator[bool] = iter(())
        self._before_update = 0  # micro-batches of the first update that are yet to come

    def begin(self, samples: Sequence[VisionSample]) -> None:
        """A generation batch is about to be prepared from samples."""
        host = self._host
        if host.template.sequence_parallel_size > 1:  # a chunk has samples of several ranks
            self._teacher_input = repeat(any(with_teacher_input(host, [samples])))
        else:
            self._teacher_input = iter(with_teacher_input(host, host.split_by_mini_batches(samples)))
        self._before_update = before_update(host) if host.model.training else _EVERY

    def is_needless(self, record: BatchRecord) -> bool:
        """True if the old pass over the next micro-batch is needless; asked once for each."""
        self._before_update -= 1
        record.first_update = self._before_update >= 0
        teacher = next(self._teacher_input, False)
        is_needless = self._skips and record.first_update and not teacher
        record.skipped += is_needless
        return is_needless

    def note(self, record: BatchRecord, grpo_batch: GRPOBatch, logps: PerToken) -> None:
        """A pass is done: the policy's first one is also the old one."""
        if not (self._own and self._host.model.training and torch.is_grad_enabled()):
            return
        if record.first_update or not self._host.old_policy():
            record.first_update = False
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


def with_teacher_input(host: Host, chunks: Sequence[Sequence[VisionSample]]) -> list[bool]:
    """For each micro-batch, whether a row of any rank has a prompt or images for a teacher alone.

    A collective, unless the dataset has no such column.
    """
    if not _may_have_teacher_input(host):
        return [False] * len(chunks)
    here = [any(map(_has_teacher_input, chunk)) for chunk in chunks]
    return [any(ranks) for ranks in zip_longest(*gather_object([here]))]


def _has_teacher_input(sample: VisionSample) -> bool:
    # ms-swift 4.5 has no images of its own for a teacher.
    return bool(sample.teacher_prompt) or getattr(sample, "teacher_images", None) is not None


def _may_have_teacher_input(host: Host) -> bool:
    dataset = host.train_dataset if host.model.training else host.eval_dataset
    columns = getattr(dataset, "column_names", None)
    return not isinstance(columns, (list, tuple)) or bool(_TEACHER_COLUMNS & set(columns))


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
        "kl_in_reward needs the old log-probs; --kl_in_reward false": host.kl_in_reward and host.beta,
        **teachers(host),
        "the liger loss corrects rollouts by it; --use_liger_kernel false": args.use_liger_kernel
        and args.rollout_importance_sampling_mode,
    }
    return [why for why, reads in readers.items() if reads]


def teachers(host: Host) -> dict[str, bool]:
    """Ways to have a teacher, and whether this run has it."""
    return {
        "the teacher's loss reads old log-probs; no --teacher_model": bool(host._has_teacher_explicit()),
        "--advantage_reweight rlsd; without it": host.advantage_reweight == "rlsd",
        "the SDAR loss reads it; --sdar_loss_coef 0": host.sdar_loss_coef > 0,
    }
