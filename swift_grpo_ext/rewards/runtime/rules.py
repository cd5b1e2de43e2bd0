"""The reward table: parameters, routing, gates, schedules and normalisation, as data.

``SWIFT_GRPO_EXT_REWARD_TABLE`` holds it as JSON or as the path of a JSON file::

    {"task_column": "task",
     "rewards": {
       "ext_iou":    {"tasks": ["grounding"], "gate": "ext_format", "parameters": {"frame": "norm1000"}},
       "ext_ocr":    {"tasks": ["ocr"], "gold": "transcription", "weight": [[0, 1.0], [500, 0.5]]},
       "ext_cosine": {"inputs": {"accuracy": "ext_choice"}},
       "my_reward":  {"tasks": ["chart"], "normalise": true}}}

The key ``*`` under ``rewards`` gives parameters to every reward of the catalogue that has them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.catalogue import NAMES, get_reward

SETTING = "SWIFT_GRPO_EXT_REWARD_TABLE"
ALL = "*"


class RewardRule(BaseModel):
    """What the table says about one reward.

    Attributes:
        parameters: Parameters of a reward of the catalogue; a row's columns override them.
        gold: Column to use in the place of ``solution``.
        inputs: Columns to fill with the score of another reward of the catalogue.
        tasks: Values of the task column that it applies to; others are not scored. Empty: all.
        gate: A reward of the catalogue that must reach `gate_at`, else the score is the lowest possible.
        gate_at: What the gate must reach; its highest score if not given.
        floor: Score behind a closed gate, for a reward of the user's own.
        weight: Factor on ``--reward_weights``; or points [step, factor], between them a straight line.
        normalise: Divide by the running standard deviation of the task.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: dict[str, Any] = Field(default_factory=dict)
    gold: str | None = None
    inputs: dict[str, str] = Field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    gate: str | None = None
    gate_at: float | None = None
    floor: float = 0.0
    weight: float | Annotated[list[tuple[int, float]], Field(min_length=1)] = 1.0
    normalise: bool = False

    def weight_at(self, step: int) -> float:
        """The factor at an optimizer step."""
        if not isinstance(self.weight, list):
            return self.weight
        points = sorted(self.weight)
        for (start, low), (end, high) in pairwise(points):
            if start <= step < end:
                return low + (high - low) * (step - start) / (end - start)
        return points[0][1] if step < points[0][0] else points[-1][1]


class RewardTable(BaseModel):
    """All rules. `task_column` names the column that routes rows and splits the logged rewards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_column: str = "task"
    rewards: dict[str, RewardRule] = Field(default_factory=dict)

    def rule(self, *names: str) -> RewardRule:
        """The rule of a reward under any of its names, with the parameters given to all."""
        own = next((self.rewards[name] for name in names if name in self.rewards), RewardRule())
        shared = self.rewards.get(ALL, RewardRule()).parameters
        known = [name for name in names if name in NAMES]
        fitting = {
            key: value for key, value in shared.items() if known and key in get_reward(known[0]).parameters
        }
        return own.model_copy(update={"parameters": {**fitting, **own.parameters}})

    @model_validator(mode="after")
    def _only_known_rewards_are_called(self) -> RewardTable:
        for name, rule in self.rewards.items():
            called = [*([rule.gate] if rule.gate else []), *rule.inputs.values()]
            for other in called:
                if other not in NAMES or get_reward(other).cost == "async":
                    raise ValueError(
                        f"{name} needs the score of {other!r}, which is no synchronous ext_ reward"
                    )
            if name in NAMES:
                get_reward(name).checked_parameters(rule.parameters)
            elif rule.parameters and name != ALL:
                raise ValueError(f"{name} is not of the catalogue and takes no parameters")
        return self


@lru_cache(maxsize=8)
def load_table(text: str) -> RewardTable:
    """Read a table from JSON, or from the JSON file of that path; empty text is an empty table.

    Raises:
        SettingsError: Not readable, or a key or value that does not fit.
    """
    if not text.strip():
        return RewardTable()
    source = text
    if not text.lstrip().startswith("{"):
        path = Path(text).expanduser()
        if not path.is_file():
            raise SettingsError(
                "no such file", where=f"{SETTING}={text}", mend="give JSON or the path of a JSON file"
            )
        source = path.read_text(encoding="utf-8")
    try:
        return RewardTable.model_validate(json.loads(source))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{first['msg']} at {place or 'the top'}", where=SETTING) from None
    except ValueError as error:
        raise SettingsError(f"not JSON: {error}", where=SETTING) from None
