"""Completions, or gold answers, scored as a run would."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.catalogue import PREFIX, get_reward, split_form
from swift_grpo_ext.rewards.contract import Columns, RewardFunction, Unscorable
from swift_grpo_ext.rewards.gold.columns import gold_completion
from swift_grpo_ext.rewards.offline.files import Rows
from swift_grpo_ext.rewards.place import last_block
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from swift_grpo_ext.rewards.runtime.scored import Scored

TOLERANCE = 1e-6  # how far below the maximum a gold answer may score: converting between frames rounds


@dataclass(frozen=True)
class Scores:
    """One reward's scores of the rows that it is for."""

    name: str
    high: float
    records: list[dict[str, Any]]  # of each row: gold, place, read, score, reason, failed, completion
    of_golds: bool  # the completions are gold answers

    def wants(self, record: Mapping[str, Any]) -> bool:
        """True if a row has no score, or a gold answer scores below the maximum."""
        least = self.high - TOLERANCE if self.of_golds else -inf
        return record["score"] is None or record["score"] < least


def score(
    name: str, rows: Rows, completions: Sequence[str] | None, table: RewardTable, plugins: Sequence[str] = ()
) -> Scores:
    """Score as a run would, by the reward table; `name` may carry parameters, or be another's reward.

    Without `completions`, the gold answers of the rows are scored.

    Raises:
        RewardError: A reward of the user raised; the first row on which it does is named. Or its gold
            answers cannot be written.
    """
    base, parameters = split_form(name)
    names = dict.fromkeys(column for row in rows for column in row)
    columns = {column: [row.get(column) for row in rows] for column in names}
    if base.startswith(PREFIX):
        ours = OfCatalogue(get_reward(base), table=table, given=parameters)
        ours.tells = False  # the printed table does
        scored: Scored = ours
        texts = completions or _gold_answers(ours, rows)
    elif completions is None:
        raise RewardError(
            f"how {name} wants its gold answered is not known",
            fix="leave it out of --gold, or give --completions, one text a row",
        )
    else:
        scored = Scored(_function(name, plugins), name)
        scored.follow(table, name)
        texts = completions
    if {"gold", "advantages"} <= columns.keys():  # of a run, which logs the gold of each row's task there
        scored.rule = scored.rule.model_copy(update={"gold": "gold"})
    _run(scored, Batch(texts, columns, {}))
    golds = [scored.rule.gold] if scored.rule.gold else scored.gold
    records = [
        {
            "reward": scored.name,
            "row": number,
            "gold": next((row[name] for name in golds if row.get(name) is not None), None),
            "place": last_block(text) or text,
            "read": outcome.read,
            "score": outcome.score,
            "reason": outcome.reason or ("it gave None" if outcome.score is None else ""),
            "failed": outcome.failed,
            "completion": text,
        }
        for number, (row, text, outcome) in enumerate(zip(rows, texts, scored.outcomes, strict=True), 1)
        if scored.rule.is_for(row.get(scored.task_column))
    ]
    high = scored.reward.high if isinstance(scored, OfCatalogue) else 1.0
    return Scores(scored.name, high, records, completions is None)


def _function(name: str, plugins: Sequence[str]) -> RewardFunction:
    print(f"swift-grpo-ext: loading ms-swift for {name!r}, which takes a while", file=sys.stderr, flush=True)
    from swift_grpo_ext.rewards.registration import function_named

    return function_named(name, plugins)


def _run(scored: Scored, batch: Batch) -> None:
    """Score; where a reward of the user fails for the batch, each row alone, to name the one at fault.

    Raises:
        RewardError: It raised.
    """
    asyncio.run(scored.scored(batch))
    if isinstance(scored, OfCatalogue) or not any(outcome.failed for outcome in scored.outcomes):
        return
    scored.one_by_one = True
    asyncio.run(scored.scored(batch))
    row = next((row for row, outcome in enumerate(scored.outcomes) if outcome.failed), 0)
    raise RewardError(
        f"reward {scored.name!r} raised {scored.outcomes[row].reason}",
        where=f"row {row + 1}",
        fix="call it on this row to see more",
    )


def _gold_answers(scored: OfCatalogue, rows: Rows) -> list[str]:
    """The rows' gold answers as completions, an empty one for a row without a usable gold.

    Raises:
        RewardError: The reward does not compare with a gold.
    """
    if not scored.gold:
        raise RewardError(f"{scored.name} compares with no gold", fix="leave it out of --gold")
    return [_gold_answer(scored, row) for row in rows]


def _gold_answer(scored: OfCatalogue, row: Columns) -> str:
    try:
        return gold_completion(scored.reward, scored.with_gold(row), **scored.parameters)
    except Unscorable:
        return ""
