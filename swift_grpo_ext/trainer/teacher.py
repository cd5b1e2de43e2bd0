"""A run without a teacher is not refused for having one.

ms-swift 4.6.0 sets ``_has_teacher`` in every run, because a dataset might have a ``teacher_prompt`` column.
Its loss then refuses ``fipo``, ``real`` and the off-policy sequence mask, which cannot take a teacher, in
runs that have none.

Goes when ms-swift looks at the batch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch


def no_phantom_teacher(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, the run has a teacher only if the micro-batch has its log-probs."""
    present = host._has_teacher and grpo_batch.teacher_per_token_logps is not None
    return swapped(host, "_has_teacher", present)
