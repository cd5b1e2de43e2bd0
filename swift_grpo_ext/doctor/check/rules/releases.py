"""Installed releases that do not fit one another, or lack what the run needs."""

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import anywhere, fault, refused, rule
from swift_grpo_ext.findings import ERROR, Problem

# What ms-swift's GRPO imports whatever is trained, of releases that pip does not hold together.
_IMPORTED = ("trl", "msgspec", "torchvision")


@rule(
    "packages",
    ERROR,
    symptoms=(
        "ImportError: trl>=0.26 is required",
        "Your current version of `trl` is outdated.",
        "ModuleNotFoundError: No module named 'msgspec'",
        "RuntimeError: operator torchvision::nms does not exist",
        "Could not import module 'BloomPreTrainedModel'",
        "seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'",
    ),
    cause=(
        "ms-swift's GRPO is made of trl's, a torchvision is built for one torch, and msgspec is imported "
        "without being declared: releases that do not fit fail far from their cause."
    ),
    reports=("A7", "B12"),
    scope=anywhere,
)
def _packages(run: Run) -> Iterator[Problem]:
    for fact in run.packages:
        if fact.problem and fact.name in _IMPORTED:
            yield Problem(fact.problem, fact.name, fact.fix)


@rule(
    "zero3-loses-its-trace",
    ERROR,
    symptoms="IndexError: pop from an empty deque",
    cause=(
        "DeepSpeed before 0.19.2 keys its parameter trace by ids that the rollout renumbers; "
        "transformers 5.0.0 to 5.5.3 has a cause of its own."
    ),
    reports=("A3", "https://github.com/deepspeedai/DeepSpeed/pull/8043"),
)
def _zero3_loses_its_trace(run: Run) -> Iterator[Problem]:
    yield from refused(run, "A3")
    args = run.arguments
    gathers = run.stage == 3 and not args.use_vllm and args.ds3_gather_for_generation
    release = run.versions.get("transformers") or "0"
    if gathers and SpecifierSet(">=5.0.0,<5.5.4").contains(release, prereleases=True):
        what = f"transformers {release} loses ZeRO-3's trace"
        yield Problem(what, "transformers", 'pip install "transformers>=5.5.4"')


def _is_reentrant(run: Run) -> bool:
    kwargs = str(run.arguments.gradient_checkpointing_kwargs or "")
    return re.search("use_reentrant.*true", kwargs, re.I | re.S) is not None


fault(
    "reentrant-ddp",
    ERROR,
    lambda run: (
        _is_reentrant(run)
        and run.ranks > 1
        and not run.arguments.deepspeed
        and not run.is_patched("A5-reentrant-ddp")
    ),
    "reentrant checkpointing under DDP marks parameters twice",
    "--gradient_checkpointing_kwargs",
    "--gradient_checkpointing_kwargs '{{\"use_reentrant\": false}}'",
    symptoms="RuntimeError: Expected to mark a variable ready only once.",
    cause="Reentrant checkpointing under DDP, in any dtype: fp16 instead of bf16 does not help.",
    reports="A5",
)
