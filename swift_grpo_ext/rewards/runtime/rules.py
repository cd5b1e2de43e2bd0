"""The reward table: parameters, routing, golds, gates and schedules, as data.

``SWIFT_GRPO_EXT_REWARD_TABLE`` holds it as JSON or as the path of a JSON file; docs/parts/rewards.md has
an example. The key ``*`` under ``rewards`` gives parameters to every reward that has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from swift_grpo_ext.errors import SettingsError, nearest
from swift_grpo_ext.rewards.catalogue import NAMES, PREFIX, get_reward
from swift_grpo_ext.rewards.contract import Reward, Unscorable
from swift_grpo_ext.rewards.reading.json_text import Json

SETTING = "SWIFT_GRPO_EXT_REWARD_TABLE"
ALL = "*"
MAX_PATH = 4096  # characters of a path; more are refused by the system with an error of its own


class RewardRule(BaseModel):
    """What the table says about one reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: dict[str, Any] = {}  # of a reward of the catalogue; a row's columns override them
    gold: str | None = None  # column to use instead of ``solution``, and of every other gold of the reward
    inputs: dict[str, str] = {}  # columns to fill with the score of another reward of the catalogue
    tasks: tuple[str, ...] = ()  # values of the task column that it applies to, as text; empty: all
    gate: str | None = None  # a reward of the catalogue, behind which the score is the lowest possible
    gate_at: FiniteFloat | None = None  # what the gate must reach; its highest score if not given
    # Factor on ``--reward_weights``; or points [step, factor], between them a straight line.
    weight: FiniteFloat | Annotated[list[tuple[int, FiniteFloat]], Field(min_length=1)] = 1.0

    @field_validator("tasks", mode="before")
    @classmethod
    def _as_texts(cls, tasks: Json) -> list[Json]:
        """One task without a list is one, and a number is its text."""
        listed = tasks if isinstance(tasks, (list, tuple)) else [tasks]
        return [str(task) if isinstance(task, int) else task for task in listed]

    def is_for(self, task: str | int | None) -> bool:
        """Whether one of its `tasks` is this value of the task column."""
        return task is not None and str(task) in self.tasks

    @property
    def calls(self) -> tuple[str, ...]:
        """The rewards whose score it needs."""
        return (*([self.gate] if self.gate else []), *self.inputs.values())

    def weight_at(self, step: int) -> float:
        """The factor at an optimizer step."""
        if not isinstance(self.weight, list):
            return self.weight
        import numpy as np

        steps, factors = zip(*sorted(self.weight), strict=True)
        return float(np.interp(step, steps, factors))


class RewardTable(BaseModel):
    """All rules. `task_column` names the column that routes rows and splits the logged rewards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_column: str = "task"
    rewards: dict[str, RewardRule] = Field(default_factory=dict)

    def rule(self, *names: str) -> RewardRule:
        """The rule of a reward under any of its names, with the parameters given to all."""
        own = next((self.rewards[name] for name in names if name in self.rewards), RewardRule())
        shared = self.rewards.get(ALL, RewardRule()).parameters
        of_catalogue = [name for name in names if name in NAMES]
        accepted = get_reward(of_catalogue[0]).parameters if of_catalogue else {}
        fitting = {key: value for key, value in shared.items() if key in accepted}
        return own.model_copy(update={"parameters": {**fitting, **own.parameters}})

    @model_validator(mode="after")
    def _only_known_rewards_are_called(self) -> RewardTable:
        for name, rule in self.rewards.items():
            for needed in rule.calls:
                if needed not in NAMES or get_reward(needed).cost == "async":
                    raise ValueError(
                        f"{name} needs the score of {needed!r}, which is no synchronous ext_ reward"
                    )
            _check_name(name, rule)
        for name in self.rewards:
            self._check_ends(name, ())
        return self

    def _check_ends(self, name: str, before: tuple[str, ...]) -> None:
        """No reward may wait for its own score.

        Raises:
            ValueError: One does, if only by way of others.
        """
        if name in before:
            raise ValueError(f"{' needs the score of '.join((*before, name))}: a circle")
        rule = self.rewards.get(name, RewardRule())
        inputs = get_reward(name).inputs if name in NAMES else {}
        own = [reward for column, reward in inputs.items() if column not in rule.inputs]
        for other in (*rule.calls, *own):
            self._check_ends(other, (*before, name))


def _check_name(name: str, rule: RewardRule) -> None:
    """Check one rule.

    Raises:
        ValueError: The rule says what cannot be said of the reward of this name.
    """
    if name == ALL:
        _check_shared(rule)
    elif name in NAMES:
        _check_of_catalogue(get_reward(name), rule)
    elif name.startswith(PREFIX):
        raise ValueError(f"unknown reward {name!r}, did you mean {nearest(name, NAMES)!r}?")
    elif rule.parameters:
        raise ValueError(f"{name} is not of the catalogue and takes no parameters")
    _check_gate(name, rule)


def _check_shared(rule: RewardRule) -> None:
    """Check the rule for all rewards: it may have parameters only.

    Raises:
        ValueError: It has more than parameters, or a parameter that no reward has.
    """
    if rule != RewardRule(parameters=rule.parameters):
        other = min(rule.model_fields_set - {"parameters"})
        raise ValueError(f"{ALL} gives parameters only, not {other}")
    parameters = {parameter for reward in NAMES for parameter in get_reward(reward).parameters}
    if unknown := sorted(rule.parameters.keys() - parameters):
        raise ValueError(f"no reward has the parameter {unknown[0]!r}")


def _check_of_catalogue(reward: Reward, rule: RewardRule) -> None:
    reward.declared.checked(rule.parameters)
    if unread := sorted(rule.inputs.keys() - set(reward.columns)):
        raise ValueError(f"{reward.name} does not read the column {unread[0]!r}")


def _check_gate(name: str, rule: RewardRule) -> None:
    if rule.gate_at is None:
        return
    if rule.gate is None:
        raise ValueError(f"{name} has gate_at, but no gate")
    high = get_reward(rule.gate).high
    if rule.gate_at > high:
        raise ValueError(f"{name} has gate_at {rule.gate_at:g}, but {rule.gate} scores {high:g} at most")


@lru_cache(maxsize=8)
def load_table(text: str, given_by: str = SETTING) -> RewardTable:
    """A table from JSON, or the JSON file of that path; `given_by` names the variable or option in errors.

    Raises:
        SettingsError: The file is missing, the text is not JSON, or the table is wrong.
    """
    if not text.strip():
        return RewardTable()
    source = text
    where = given_by
    if not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        where = f"{given_by}={text:.200}"
        if len(text) > MAX_PATH or not path.is_file():
            raise SettingsError("no such file", where=where, fix="give JSON or the path of a JSON file")
        source = path.read_text(encoding="utf-8")
    try:
        return RewardTable.model_validate(json.loads(source))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what = first["msg"].removeprefix("Value error, ") + (f" at {place}" if place else "")
        raise SettingsError(what, where=where) from None
    except ValueError as error:
        raise SettingsError(f"not JSON: {error}", where=where) from None


def column_notes(
    reward: Reward, columns: Mapping[str, Sequence[object]], named: str | None = None
) -> Iterator[str]:
    """What a user should know of a dataset's columns before it is read; `named` is the table's gold."""
    filled = [name for name, values in columns.items() if any(value not in (None, "") for value in values)]
    for name in (name for name in reward.row_settable if name in filled):
        try:
            for value in columns[name]:
                reward.row_parameters({name: value})
        except Unscorable:
            renamed = f"""--columns '{{"{name}": "{name}_of_data"}}'"""
            what = f"column {name!r} is a parameter of rewards, and rows hold something else"
            yield f"{what}: {renamed} renames it"
    golds = [name for name in reward.gold if name in filled]
    if len(golds) > 1 and golds[0] != "solution" and not named:
        rest = " and ".join(map(repr, golds[1:]))
        table = f'{SETTING}={{"rewards": {{"{reward.name}": {{"gold": "{golds[1]}"}}}}}}'
        what = f"reward {reward.name!r} reads its gold from column {golds[0]!r}, not {rest}"
        yield f"{what}; {table} changes that"
