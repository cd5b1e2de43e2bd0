"""The reward table: parameters, tasks and golds of rewards, as data.

``SWIFT_GRPO_EXT_REWARD_TABLE`` holds it as JSON or as the path of a JSON file; docs/parts/rewards.md has
an example. The key ``*`` under ``rewards`` gives parameters to every reward that has them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from swift_grpo_ext.errors import SettingsError, nearest
from swift_grpo_ext.rewards.catalogue import NAMES, PREFIX, get_reward

SETTING = "SWIFT_GRPO_EXT_REWARD_TABLE"
ALL = "*"
MAX_PATH = 4096  # characters of a path; more are refused by the system with an error of its own
_GONE = {
    "gate": "give ext_format a --reward_weights of its own, or multiply in a reward of yours",
    "gate_at": "give ext_format a --reward_weights of its own, or multiply in a reward of yours",
    "weight": "give --reward_weights, one for each of --reward_funcs",
    "inputs": 'of ext_cosine name the reward as a parameter: "accuracy_reward": "ext_choice"',
}


class RewardRule(BaseModel):
    """What the table says about one reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: dict[str, Any] = {}  # of a reward of the catalogue; a row's columns override them
    gold: str | None = None  # column to use instead of ``solution``, and of every other gold of the reward
    tasks: tuple[str, ...] = ()  # values of the task column that it applies to, as text; empty: all

    @model_validator(mode="before")
    @classmethod
    def _say_what_is_gone(cls, rule: Any) -> Any:
        for key in rule if isinstance(rule, dict) else ():
            if key in _GONE:
                raise ValueError(f"{key!r} is gone from the reward table -> {_GONE[key]}")
        return rule

    @field_validator("tasks", mode="before")
    @classmethod
    def _as_texts(cls, tasks: Any) -> list[Any]:
        """One task without a list is one, and a number is its text."""
        listed = tasks if isinstance(tasks, (list, tuple)) else [tasks]
        return [str(task) if isinstance(task, int) else task for task in listed]

    def is_for(self, task: object) -> bool:
        """Whether its tasks are all, or one of them is this value of the task column."""
        return not self.tasks or (task is not None and str(task) in self.tasks)


class RewardTable(BaseModel):
    """All rules. `task_column` names the column that routes rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_column: str = "task"
    rewards: dict[str, RewardRule] = Field(default_factory=dict)

    def rule(self, *names: str) -> RewardRule:
        """The rule of a reward under any of its names, with the parameters given to all."""
        own = next((self.rewards[name] for name in names if name in self.rewards), RewardRule())
        shared = self.rewards.get(ALL, RewardRule()).parameters
        of_catalogue = next((get_reward(name) for name in names if name in NAMES), None)
        accepted = of_catalogue.parameters if of_catalogue else {}
        fitting = {key: value for key, value in shared.items() if key in accepted}
        return own.model_copy(update={"parameters": {**fitting, **own.parameters}})

    @model_validator(mode="after")
    def _check_names(self) -> RewardTable:
        for name, rule in self.rewards.items():
            if name in NAMES:
                get_reward(name).declared.checked(rule.parameters)
            elif name == ALL:
                _check_shared(rule)
            elif name.startswith(PREFIX):
                raise ValueError(f"unknown reward {name!r}, did you mean {nearest(name, NAMES)!r}?")
            elif rule.parameters:
                raise ValueError(f"{name} is not of the catalogue and takes no parameters")
        return self


def _check_shared(rule: RewardRule) -> None:
    """Check the rule for all rewards: it may have parameters only.

    Raises:
        ValueError: It has more than parameters, or a parameter that no reward has.
    """
    if others := sorted(rule.model_fields_set - {"parameters"}):
        raise ValueError(f"{ALL} gives parameters only, not {others[0]}")
    known = {parameter for reward in NAMES for parameter in get_reward(reward).parameters}
    if unknown := sorted(rule.parameters.keys() - known):
        raise ValueError(f"no reward has the parameter {unknown[0]!r}")


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
        problem = first["msg"].removeprefix("Value error, ") + (f" at {place}" if place else "")
        raise SettingsError(problem, where=where) from None
    except ValueError as error:
        raise SettingsError(f"not JSON: {error}", where=where) from None
