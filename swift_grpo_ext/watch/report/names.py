"""Rewards by the names that the user typed: ms-swift logs a function under the name of its class."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from swift_grpo_ext.watch.report.run import Group, Run

T = TypeVar("T")


def with_typed_names(run: Run) -> Run:
    """The run with each reward under the name of ``--reward_funcs``, where it is known which is which."""
    names = typed_names(run)
    if not names:
        return run
    return replace(
        run,
        records=tuple({_figure(name, names): record[name] for name in record} for record in run.records),
        groups=tuple(_group(group, names) for group in run.groups),
        held_out=tuple(
            replace(evaluation, scores=_renamed(evaluation.scores, names)) for evaluation in run.held_out
        ),
    )


def typed_names(run: Run) -> dict[str, str]:
    """What was typed for each logged reward that is called otherwise; empty where that is not clear."""
    given = run.arguments.get("reward_funcs")
    typed = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    logged = run.reward_names()
    unknown = [name for name in logged if name not in typed]
    left = [name for name in typed if name not in logged]
    return dict(zip(unknown, left, strict=True)) if len(unknown) == len(left) else {}


def _figure(name: str, names: Mapping[str, str]) -> str:
    """The name of a logged figure, ``rewards/NAME/mean`` among them."""
    first, *rest = name.split("/")
    if first not in ("rewards", "unscored") or not rest or rest[0] not in names:
        return name
    return "/".join([first, names[rest[0]], *rest[1:]])


def _renamed(columns: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    return {names.get(name, name): column for name, column in columns.items()}


def _group(group: Group, names: Mapping[str, str]) -> Group:
    samples = (replace(sample, rewards=_renamed(sample.rewards, names)) for sample in group.samples)
    return replace(group, samples=tuple(samples))
