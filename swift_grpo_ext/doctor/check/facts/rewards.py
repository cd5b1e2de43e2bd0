"""What rewards need of a row, read without running them, and what they do to a few answers in a child."""

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from swift_grpo_ext.doctor.check.facts.rows import SeenRow, training
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.rewards import catalogue

NOT_GOLD = frozenset(
    (
        *("messages", "images", "videos", "audios", "tools", "objects", "channel", "dataset"),
        *("chat_template_kwargs", "rejected_messages", "rejected_images", "positive_messages"),
        *("negative_messages", "teacher_prompt"),
    )
)
# What the trainer hands to a reward beside the columns of a row.
_OF_THE_TRAINER = (
    "trainer_state",
    "response_token_ids",
    "finish_reason",
    "is_truncated",
    "request_id",
    "prompt_id",
)
_ROWS = 4
LIMIT = 15
"""Seconds that a reward may take for the answers to a few rows."""


@dataclass(frozen=True)
class Trial:
    """What became of a reward of ms-swift or of a plugin."""

    name: str
    fault: str = ""  # what it raised, or what is wrong with what it returned
    place: str = ""  # the line of the user's file in which it did
    hangs: bool = False  # it did not end in time

    @property
    def lacks(self) -> str:
        """The column that it was called without, and needs."""
        column = re.search(r"missing \d+ required .*argument.*'(\w+)'", self.fault)
        return column[1] if column else ""


def names(run: Run) -> list[str]:
    """The rewards of the command line whose names can be read; a rule reports the others."""
    found = []
    for text in run.arguments.reward_funcs or []:
        with suppress(SwiftGrpoExtError):
            name = catalogue.split_form(text)[0]
            found += [] if set("$, ") & set(name) else [name]
    return list(dict.fromkeys(found))


def missing(run: Run, name: str, samples: Sequence[SeenRow]) -> str:
    """The gold column that a reward needs, and none of the rows has; empty where it needs none, or has it."""
    columns = {column for sample in samples for column in sample.columns}
    if name in catalogue.NAMES:
        gold = catalogue.get_reward(name).gold
        return "" if columns.intersection(gold) else " or ".join(gold)
    own = dict(pair for plugin in run.plugins for pair in _needs(plugin.text))
    needed = own.get(name) or host_table.table()["columns"].get(name, ())
    return next((column for column in needed if column not in (*columns, *_OF_THE_TRAINER)), "")


def _needs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Names of rewards that a plugin registers, with the columns that they need; nothing is run."""
    if "orms[" not in text:
        return
    with suppress(SyntaxError, ValueError, RecursionError):
        nodes = list(ast.walk(ast.parse(text)))
        calls = {
            node.name: [argument.arg for argument in call.args.args][
                2 : len(call.args.args) - len(call.args.defaults)
            ]
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for call in node.body
            if isinstance(call, (ast.FunctionDef, ast.AsyncFunctionDef)) and call.name == "__call__"
        }
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                key, made = node.targets[0].slice, node.value
                if isinstance(key, ast.Constant) and isinstance(made, ast.Name) and made.id in calls:
                    yield str(key.value), calls[made.id]


@lru_cache(maxsize=8)
def trials(run: Run) -> tuple[Trial, ...]:
    """The rewards of ms-swift and of plugins, called with the gold answer and an empty one of the first rows.

    Raises:
        NotKnownError: which rewards there are, or where the rows are, is not known, or the child has ended.
    """
    samples = training(run)[:_ROWS] if run.tries_rewards else []
    files = [str(plugin.path.resolve()) for plugin in run.plugins if plugin.path and plugin.of_the_user]
    tried = [name for name in names(run) if name not in catalogue.NAMES]
    if not samples or not tried:
        return ()
    rows = [row for sample in samples for row in _answered(sample)]
    columns = sorted({column for row in rows for column in row})
    question = {
        "plugins": files,
        "rewards": tried,
        "completions": [row["messages"][-1]["content"] for row in rows],
        "columns": {column: [row.get(column) for row in rows] for column in columns},
        "arguments": _arguments(run),
        "limit": LIMIT,
    }
    try:
        (answer,) = host_table.ask([question], own_network=True)
    except SwiftGrpoExtError as error:
        raise NotKnownError("rewards, in which a plugin has ended the process") from error
    return tuple(Trial(*trial) for trial in answer)


def _answered(sample: SeenRow) -> Iterator[dict[str, Any]]:
    """A row with its gold answer, and with none, as the trainer hands it to a reward."""
    golds = [value for name, value in sample.columns.items() if name not in NOT_GOLD]
    for number, text in enumerate((f"<think>-</think><answer>{next(iter(golds), '')}</answer>", "")):
        yield {
            **sample.columns,
            "messages": [*sample.prompt, {"role": "assistant", "content": text}],
            "response_token_ids": list(range(len(text.split()))),
            "finish_reason": "stop",
            "is_truncated": False,
            "request_id": f"{sample.where} {number}",
            "prompt_id": sample.where,
        }


def _arguments(run: Run) -> dict[str, object]:
    """What reward classes read from ``args``, with the defaults that the host fills in."""
    plain = (str, int, float, bool, list, type(None))
    values = {name: value for name, value in run.arguments.values.items() if isinstance(value, plain)}
    length = values.get("max_completion_length")
    return {**values, **{name: values.get(name) or length for name in ("soft_max_length", "cosine_max_len")}}
