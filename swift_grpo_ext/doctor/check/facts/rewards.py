"""Columns that rewards need, and trials of plugins' rewards on a few answers in a child process."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from swift_grpo_ext.doctor.check.facts.rows import SeenRow, training
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, load_table

NOT_GOLD = {"messages", "images", "videos", "audios", "tools", "objects", "channel", "dataset"}
NOT_GOLD |= {"chat_template_kwargs", "rejected_messages", "rejected_images", "positive_messages"}
NOT_GOLD |= {"negative_messages", "teacher_prompt"}
# Arguments that the trainer passes to a reward beside the columns of a row.
_OF_THE_TRAINER = {
    "response_token_ids": [0],
    "finish_reason": "stop",
    "is_truncated": False,
    "request_id": "request",
    "prompt_id": "prompt",
}
_ROWS = 4
LIMIT = 15
"""Seconds that a reward may take for the answers to a few rows."""


@dataclass(frozen=True)
class Trial:
    """Result of a trial of one plugin's reward."""

    name: str
    fault: str = ""  # the error that it raised, or the fault of the value that it returned
    place: str = ""  # the line of the user's file that raised it

    @property
    def lacks(self) -> str:
        """The missing column that it needs; empty if none is missing."""
        column = re.search(r"missing \d+ required .*argument.*'(\w+)'", self.fault)
        return column[1] if column else ""


def names(run: Run) -> list[str]:
    """The rewards of the command line whose names can be read; a rule reports the others."""
    readable = []
    for text in run.arguments.reward_funcs or []:
        with suppress(SwiftGrpoExtError):
            readable += [catalogue.split_form(text)[0]]
    return [name for name in dict.fromkeys(readable) if not set("$, ") & set(name)]


def table_of(run: Run) -> RewardTable:
    """The reward table of a run.

    Raises:
        NotKnownError: it cannot be read.
    """
    text = str(run.environ.get(SETTING, ""))
    try:
        return load_table(text and str(run.find(text) or text))
    except SettingsError as error:
        raise NotKnownError(f"the reward table: {error.what}") from error


def missing(run: Run, name: str, samples: Sequence[SeenRow]) -> str:
    """The column that a reward needs and no row has; empty if it needs none, or a row has it."""
    columns = {
        "trainer_state",
        *_OF_THE_TRAINER,
        *(column for sample in samples for column in sample.columns),
    }
    if name in catalogue.NAMES:
        own = table_of(run).rule(name).gold
        gold = [own] if own else catalogue.get_reward(name).gold
        return "" if columns.intersection(gold) else " or ".join(gold)
    return next((name for name in host_table.table()["columns"].get(name, ()) if name not in columns), "")


@lru_cache(maxsize=8)
def trials(run: Run) -> tuple[Trial, ...]:
    """Call the plugins' rewards with the gold answer and with an empty answer for each of the first rows.

    Raises:
        NotKnownError: the rewards or the place of the rows is unknown, or the child process has ended.
    """
    known = host_table.names("reward_funcs")
    tried = [name for name in names(run) if name not in known and not name.startswith("ext_")]
    samples = training(run)[:_ROWS] if tried and run.tries_rewards and run.has_plugins_of_the_user else []
    if not samples:
        return ()
    rows = [row for sample in samples for row in _answered(sample)]
    plain = (str, int, float, bool, list, type(None))
    question = {
        "plugins": [
            str(plugin.path.resolve()) for plugin in run.plugins if plugin.path and plugin.of_the_user
        ],
        "rewards": tried,
        "completions": [row["messages"][-1]["content"] for row in rows],
        "columns": {column: [row.get(column) for row in rows] for column in set().union(*rows)},
        "arguments": {
            name: value for name, value in run.arguments.values.items() if isinstance(value, plain)
        },
        "limit": LIMIT,
    }
    try:
        (answer,) = host_table.ask([question], own_network=True)
    except SwiftGrpoExtError as error:
        raise NotKnownError("rewards, in which a plugin has ended the process") from error
    return tuple(Trial(*trial) for trial in answer)


def _answered(sample: SeenRow) -> Iterator[dict[str, Any]]:
    """A row with its gold answer, and with an empty one, as the trainer passes it to a reward."""
    gold = next((value for name, value in sample.columns.items() if name not in NOT_GOLD), "")
    for text in (f"<think>-</think><answer>{gold}</answer>", ""):
        messages = [*sample.prompt, {"role": "assistant", "content": text}]
        yield {**_OF_THE_TRAINER, **sample.columns, "messages": messages}
