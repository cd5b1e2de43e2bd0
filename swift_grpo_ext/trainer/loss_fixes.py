"""Defects of ms-swift's loss that we fix while it runs, each in a file that goes with its defect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.real_groups import real_groups
from swift_grpo_ext.trainer.teacher import no_phantom_teacher
from swift_grpo_ext.trainer.window_loss import whole_window

FIXES = (no_phantom_teacher, whole_window, real_groups)


@contextmanager
def loss_fixes(host: Host, grpo_batch: object) -> Iterator[None]:
    """While this is open, ms-swift computes the loss of a micro-batch as it is meant."""
    with ExitStack() as stack:
        for fix in FIXES:
            stack.enter_context(fix(host, grpo_batch))
        yield
