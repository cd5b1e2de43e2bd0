"""On-policy the importance ratio is 1, also where an old pass is made for others.

A KL penalty in rewards and a teacher need log-probs before the update. Those come from a pass of its own,
with other dropout masks and other sums, so a ratio of them is not 1. Where a micro-batch serves a single
update, the loss takes the policy's own log-probs, as ms-swift's does when there are no old ones.

Goes when ms-swift does so itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from swift_grpo_ext.settings import disabled
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch


@contextmanager
def own_ratio(host: Host, grpo_batch: GRPOBatch) -> Iterator[None]:
    """Let the loss take the policy's own log-probs for the old ones; who else needed those has had them."""
    if not disabled("trainer.skip_old_logps") and not host.old_policy():
        grpo_batch.old_per_token_logps = None
    yield
