"""The reward table: parameters, tasks and golds of rewards, as data.

``SWIFT_GRPO_EXT_REWARD_TABLE`` holds it as JSON or as the path of a JSON file; docs/parts/rewards.md has
an example.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.catalogue import NAMES, PREFIX, get_reward, meant_by

SETTING = "SWIFT_GRPO_EXT_REWARD_TABLE"


class RewardRule(BaseModel):
    """The table's entry for one reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: dict[str, Any] = {}  # of a reward of the catalogue
    gold: str | None = None  # column to use instead of ``solution``, and of every other gold of the reward
    tasks: tuple[str, ...] = ()  # values of the task column that it applies to, as text; empty: all

    def is_for(self, task: object) -> bool:
        """True if it names no tasks, or this value of the task column is one of its tasks."""
        return not self.tasks or (task is not None and str(task) in self.tasks)


class RewardTable(BaseModel):
    """All rules. `task_column` names the column that routes rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_column: str = "task"
    rewards: dict[str, RewardRule] = Field(default_factory=dict)

    def rule(self, *names: str) -> RewardRule:
        """The rule of a reward under any of its names."""
        return next((self.rewards[name] for name in names if name in self.rewards), RewardRule())

    @model_validator(mode="after")
    def _check_names(self) -> RewardTable:
        for name, rule in self.rewards.items():
            if name in NAMES:
                get_reward(name).declared.checked(rule.parameters)
            elif name.startswith(PREFIX):
                raise ValueError(f"unknown reward {name!r}, {meant_by(name, NAMES)}")
            elif rule.parameters:
                raise ValueError(f"{name} is not of the catalogue and takes no parameters")
        return self


@lru_cache(maxsize=8)
def load_table(text: str, given_by: str = SETTING) -> RewardTable:
    """A table from JSON, or the JSON file of that path; `given_by` names the variable or option in errors.

    Raises:
        SettingsError: The file is missing, the text is not JSON, or the table is wrong.
    """
    where = given_by
    source = text.strip() or "{}"
    try:
        if not source.startswith("{"):
            where = f"{given_by}={text:.200}"
            source = Path(text).expanduser().read_text(encoding="utf-8")
        return RewardTable.model_validate(json.loads(source))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ") + (f" at {place}" if place else "")
    except OSError as error:
        problem = f"no such file ({error.strerror}), nor JSON"
    except ValueError as error:
        problem = f"not JSON: {error}"
    raise SettingsError(problem, where=where)
