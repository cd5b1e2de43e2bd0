"""What kind of training it is, and whether check knows it."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem


@table.on("not-grpo")
def _not_grpo(run: Run) -> Iterator[Problem]:
    if run.arguments.rlhf_type != "grpo" and "rlhf_type" not in run.arguments.given:
        yield Problem("ms-swift would train DPO", "--rlhf_type", "--rlhf_type grpo")


@table.on("other-training")
def _other(run: Run) -> Iterator[Problem]:
    if not run.grpo:
        yield Problem(
            f"the rest: this is {run.arguments.rlhf_type}, and the rules are those of GRPO", "--rlhf_type"
        )
