"""What kind of training it is, and whether check knows it."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem, Severity

# Rules whose subject exists in GRPO alone; the others hold for any training.
RULES = frozenset(
    {
        "generation-batch",
        "eval-batch",
        "num-generations-one",
        "no-reward",
        "unknown-reward",
        "reward-weights",
        "unknown-loss",
        "identical-completions",
        "hardly-random",
        "truncation-strategy",
        "ref-model-lora",
        "accumulation-and-generation",
        "lora-dropout",
        "soft-overlong",
        "memory",
        "memory-tight",
        "memory-unknown",
    }
)


@table.rule(
    "not-grpo",
    Severity.ERROR,
    symptoms="KeyError: 'rejected_response', or a DPO trainer starts",
    cause="Without --rlhf_type the host trains DPO.",
)
def _not_grpo(run: Run) -> Iterator[Problem]:
    if "rlhf_type" not in run.arguments.given and run.arguments.rlhf_type != "grpo":
        yield Problem("the host would train DPO", "--rlhf_type", "--rlhf_type grpo")


@table.rule(
    "other-training",
    Severity.NOTE,
    symptoms="check finds nothing in a DPO, KTO or SFT command",
    cause="Its rules are those of GRPO.",
)
def _other(run: Run) -> Iterator[Problem]:
    if not run.grpo:
        yield Problem(f"only GRPO is checked, this is {run.arguments.rlhf_type}", "--rlhf_type")
