"""Completions, or gold answers, scored as a run would."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.catalogue import PREFIX, get_reward, split_form
from swift_grpo_ext.rewards.contract import Outcome, Reward, Unscorable
from swift_grpo_ext.rewards.gold.columns import as_text, gold_completion, gold_from
from swift_grpo_ext.rewards.gold.frames import SIZES_COLUMN
from swift_grpo_ext.rewards.json_text import Json
from swift_grpo_ext.rewards.offline.files import Sample
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from swift_grpo_ext.rewards.runtime.scored import Scored

TOLERANCE = 1e-6  # how far below the maximum a gold answer may score: converting between frames rounds


@dataclass(frozen=True)
class Scores:
    """What one reward made of the samples that are its to score."""

    name: str
    gold: tuple[str, ...]  # columns that its gold may be in
    low: float
    high: float
    pairs: list[tuple[Sample, Outcome]]

    @property
    def numbers(self) -> list[float]:
        """The scores there are."""
        return [outcome.score for _, outcome in self.pairs if outcome.score is not None]

    def wanting(self, gold: bool) -> list[tuple[Sample, Outcome]]:
        """Samples without a score; of gold answers also those below the maximum."""
        least = self.high - TOLERANCE
        return [
            (sample, outcome)
            for sample, outcome in self.pairs
            if outcome.score is None or (gold and outcome.score < least)
        ]


def score(name: str, samples: Sequence[Sample], table: RewardTable, plugins: Sequence[str] = ()) -> Scores:
    """Score as a run would, by the reward table; `name` may carry parameters, or be another's reward.

    Raises:
        RewardError: A reward of the user raised; the first row on which it does is named.
    """
    base, given = split_form(name)
    names = dict.fromkeys(column for sample in samples for column in sample.columns)
    columns = {column: [sample.columns.get(column) for sample in samples] for column in names}
    batch = Batch.of([sample.completion for sample in samples], columns)
    if base.startswith(PREFIX):
        reward = get_reward(base)
        scored = OfCatalogue(reward, table=table, given=given)
        scored.tells = False  # the table does
        scored.note_columns(columns)
        asyncio.run(scored.scored(batch))
        pairs = zip(samples, scored.outcomes, strict=True)
        judged = [pair for pair in pairs if pair[1].score is not None or pair[1].reason]
        return Scores(base, reward.gold, reward.low, reward.high, judged)
    outcomes = _outcomes_of_others(name, samples, batch, plugins)
    numbers = [outcome.score for outcome in outcomes if outcome.score is not None]
    pairs = zip(samples, outcomes, strict=True)
    return Scores(name, ("solution",), min([0.0, *numbers]), max([1.0, *numbers]), list(pairs))


def _outcomes_of_others(
    name: str, samples: Sequence[Sample], batch: Batch, plugins: Sequence[str]
) -> list[Outcome]:
    print(f"swift-grpo-ext: loading ms-swift for {name!r}, which takes a while", file=sys.stderr, flush=True)
    from swift_grpo_ext.rewards.registration import function_named

    scored = Scored(function_named(name, plugins), name)
    asyncio.run(scored.scored(batch))
    outcomes = [
        outcome
        if outcome.score is not None
        else Outcome(None, outcome.reason or "it gave None", outcome.failed)
        for outcome in scored.outcomes
    ]
    for index, outcome in enumerate(outcomes if outcomes and outcomes[0].failed else ()):
        asyncio.run(scored.scored(batch.select([index])))
        if scored.outcomes[0].failed or index == len(outcomes) - 1:
            where = f"row {samples[index].row}"
            fix = "call it on this row to see more"
            raise RewardError(f"reward {name!r} raised {outcome.reason}", where=where, fix=fix)
    return outcomes


def gold_samples(name: str, rows: Sequence[dict[str, Json]], table: RewardTable) -> list[Sample]:
    """The rows with their gold answers as completions, an empty one where there is none to use.

    Raises:
        RewardError: The reward compares with no gold, or its gold is a column that the table does not name.
    """
    base, given = split_form(name)
    rule = table.rule(base)
    reward = get_reward(base) if base.startswith(PREFIX) else None
    column = rule.gold or "solution"
    if reward is not None and not reward.gold:
        raise RewardError(f"{name} compares with no gold", fix="leave it out of --gold")
    if reward is None and not any(row.get(column) is not None for row in rows):
        fix = f'name it: --table \'{{"rewards": {{"{name}": {{"gold": "COLUMN"}}}}}}\''
        raise RewardError(f"no row has a gold of {name!r} in column {column!r}", fix=fix)
    golds = [_gold_text(reward, row, column, rule.gold, {**rule.parameters, **given}) for row in rows]
    return [Sample(number, row, gold) for number, (row, gold) in enumerate(zip(rows, golds, strict=True), 1)]


def _gold_text(
    reward: Reward | None, row: dict[str, Json], column: str, named: str | None, parameters: dict[str, object]
) -> str:
    if reward is None:
        gold = row.get(column)
        return "" if gold is None else as_text(gold)
    try:
        return gold_completion(reward, gold_from(row, reward.gold, named) if named else row, **parameters)
    except Unscorable:
        return ""


def with_image_sizes(rows: Sequence[dict[str, Json]], folder: Path, gold: bool) -> list[dict[str, Json]]:
    """The rows, with the original sizes of local images (from here, else `folder`) where a row has none."""
    with_sizes = []
    for row in rows:
        images = row.get("images") if not row.get(SIZES_COLUMN) else None
        sizes = [_size(image, folder) for image in images] if isinstance(images, list) else []
        if gold:  # it is taken to the answers' frame and back, so any size does
            sizes_or_any = [size or {"original": [1000, 1000]} for size in sizes]
            sizes = [{**size, "resized": size["original"]} for size in sizes_or_any]
        with_sizes.append({**row, SIZES_COLUMN: sizes} if sizes and all(sizes) else row)
    return with_sizes


def _size(image: Json, folder: Path) -> dict[str, list[int]] | None:
    from PIL import Image

    name = image.get("path") if isinstance(image, dict) else image
    if not isinstance(name, str) or len(name) > 4096 or "://" in name:
        return None
    path = Path(name) if Path(name).is_file() else folder / name
    try:
        with Image.open(path) as opened:
            return {"original": list(opened.size)}
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
