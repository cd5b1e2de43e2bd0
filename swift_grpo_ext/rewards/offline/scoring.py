"""Completions, or gold answers, scored by rewards of the catalogue."""

import asyncio
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.catalogue import PREFIX, get_reward, split_form
from swift_grpo_ext.rewards.contract import Outcome, Reward, Unscorable
from swift_grpo_ext.rewards.gold.columns import as_text, gold_completion, gold_from
from swift_grpo_ext.rewards.gold.frames import SIZES_COLUMN
from swift_grpo_ext.rewards.offline.files import Sample
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.rewards.runtime.batch import Batch, outcomes_of
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from swift_grpo_ext.rewards.runtime.runner import Runner

TOLERANCE = 1e-6  # how far below the maximum a gold answer may score: converting between frames rounds


@dataclass(frozen=True)
class Scored:
    """What one reward made of all samples that are its to score."""

    reward: Reward
    samples: list[Sample]
    outcomes: list[Outcome]

    @cached_property
    def scores(self) -> list[float]:
        """The scores there are."""
        return [outcome.score for outcome in self.outcomes if outcome.score is not None]

    @property
    def pairs(self) -> list[tuple[Sample, Outcome]]:
        """Every sample with its outcome."""
        return list(zip(self.samples, self.outcomes, strict=True))

    def wanting(self, gold: bool) -> list[tuple[Sample, Outcome]]:
        """Samples without a score; of gold answers also those below the maximum."""
        least = self.reward.high - TOLERANCE if gold else -math.inf
        return [pair for pair in self.pairs if pair[1].score is None or pair[1].score < least]


def score(name: str, samples: Sequence[Sample], table: RewardTable, plugins: Sequence[str] = ()) -> Scored:
    """Score as a run would, by the reward table; `name` may carry parameters, or be another's reward."""
    base, given = split_form(name)
    if not base.startswith(PREFIX):
        return _scored_by_others(name, samples, plugins)
    reward = get_reward(base)
    runner = Runner(reward, table=table, given=given)
    batch = _batch(samples)
    runner.note_columns(batch.columns)
    outcomes = runner.outcomes(batch)
    judged = [index for index, outcome in enumerate(outcomes) if outcome.score is not None or outcome.reason]
    return Scored(reward, [samples[index] for index in judged], [outcomes[index] for index in judged])


def _scored_by_others(name: str, samples: Sequence[Sample], plugins: Sequence[str]) -> Scored:
    """Scores of a reward of ms-swift or the user's own; its range is 0..1, or as far as its scores reach.

    Raises:
        RewardError: The reward raised; the first row on which it does is named.
    """
    print(f"swift-grpo-ext: loading ms-swift for {name!r}, which takes a while", file=sys.stderr, flush=True)
    from swift_grpo_ext.rewards.registration import function_named

    batch = _batch(samples)
    function = function_named(name, plugins)
    try:
        output = called(function, batch)
    except Exception as error:
        number = next((row for row in range(len(batch)) if _raises(function, batch.select([row]))), 0)
        where = f"row {samples[number].row}" if samples else "no rows"
        raise RewardError(
            f"reward {name!r} raised {error!r}", where=where, fix="call it on this row to see more"
        ) from error
    outcomes = [
        outcome if outcome.score is not None else Outcome(None, outcome.reason or "it gave None")
        for outcome in outcomes_of(output, len(samples), name)
    ]
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    reward = Reward(
        name, min([0.0, *scores]), max([1.0, *scores]), gold=("solution",), function=function_named
    )
    return Scored(reward, list(samples), outcomes)


def called(function: Callable[..., object], batch: Batch) -> object:
    """What a reward function returns for a batch, waited for."""
    output = function(batch.completions, **batch.columns, **batch.shared)
    return asyncio.run(output) if inspect.iscoroutine(output) else output


def _raises(function: Callable[..., object], batch: Batch) -> bool:
    """Whether a reward of the user's own raises on these rows alone."""
    try:
        called(function, batch)
    except Exception:
        return True
    return False


def gold_samples(name: str, rows: Sequence[dict[str, Json]], table: RewardTable) -> list[Sample]:
    """The rows with their gold answers as completions, an empty one where there is none to use.

    Raises:
        RewardError: The reward compares with no gold.
    """
    base, given = split_form(name)
    if not base.startswith(PREFIX):
        golds = [(number, row, row.get("solution")) for number, row in enumerate(rows, start=1)]
        return [Sample(number, row, "" if gold is None else as_text(gold)) for number, row, gold in golds]
    reward = get_reward(base)
    if not reward.gold:
        raise RewardError(f"{name} compares with no gold", fix="leave it out of --gold")
    rule = table.rule(base)
    samples = []
    for number, row in enumerate(rows, start=1):
        columns = gold_from(row, reward.gold, rule.gold) if rule.gold else row
        try:
            text = gold_completion(reward, columns, **{**rule.parameters, **given})
        except Unscorable:
            text = ""
        samples.append(Sample(number, row, text))
    return samples


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


def _batch(samples: Sequence[Sample]) -> Batch:
    names = dict.fromkeys(name for sample in samples for name in sample.columns)
    columns = {name: [sample.columns.get(name) for sample in samples] for name in names}
    return Batch([sample.completion for sample in samples], columns, {})
