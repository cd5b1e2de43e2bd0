"""A reward of the catalogue in a run: its parameters, the frame of its model, and what it says of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, TypeVar

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.contract import Columns, Outcome, Reward, Score
from swift_grpo_ext.rewards.gold.frames import FRAMES
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.ledger import say
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.scored import AwaitedScored, Scored
from swift_grpo_ext.settings import current_settings

# Parameters whose names data sets use for other things.
_WORDS_OF_DATA = {"frame", "order", "radius", "threshold", "url", "model", "seconds"}
LOW = 0.35  # share of a reward's range: a batch with a mean score below it has its frame checked
GAIN = 0.25  # share of the range by which another frame must be better
SAMPLES = 16  # completions that are read in every frame
TIME_LIMIT = 10.0  # seconds for one completion of a reward that may hang, if no setting says otherwise
MEMORY_LIMIT = 6 << 30  # bytes of address space for a reward: 9**9**9 must not take all memory
_T = TypeVar("_T", bound="OfCatalogue")


async def over_rows(
    reward: Reward, parameters: Columns, completions: Sequence[str], **columns: Sequence[object]
) -> list[Outcome]:
    """The outcomes of some completions: a reward with its parameters as a reward function of ms-swift."""
    rows = Batch(completions, columns, {})
    return [await reward.awaited(text, rows.row(index), parameters) for index, text in enumerate(completions)]


class OfCatalogue(Scored):
    """A reward of the catalogue with ms-swift's `arguments`, its rule in the table, and parameters by name.

    Args:
        reward: The reward.
        arguments: ms-swift's; some are defaults of parameters.
        table: The reward table; by default that of the settings.
        given: Parameters that stand behind its name.
        name: As it is logged.

    Raises:
        SettingsError: A parameter is missing or does not fit.
    """

    one_by_one = True
    kills = None  # unlimited: each completion is judged alone, and a model may learn to hang it
    memory = MEMORY_LIMIT

    def __init__(
        self,
        reward: Reward,
        arguments: object = None,
        table: RewardTable | None = None,
        given: Mapping[str, object] | None = None,
        name: str = "",
    ) -> None:
        table = load_table(current_settings().reward_table) if table is None else table
        self.follow(table, reward.name)
        defaults = {
            parameter: value
            for parameter, argument in reward.host_defaults.items()
            if (value := getattr(arguments, argument, None)) is not None
        }
        self.parameters = reward.declared.checked({**defaults, **self.rule.parameters, **(given or {})})
        for needed in reward.required:
            if not self.parameters.get(needed):
                fix = f'{SETTING}={{"rewards": {{"{reward.name}": {{"parameters": {{"{needed}": "..."}}}}}}}}'
                raise SettingsError(f"{reward.name} needs the parameter {needed!r}", fix=fix)
        self.reward = reward
        self.reads = reward.gold + reward.reads
        self.gold = reward.gold
        self.on_timeout = reward.low  # an answer that cannot be checked is wrong
        self.first = (["<answer>0</answer>"], {key: ["0"] for key in self.reads})
        super().__init__(
            partial(over_rows, reward, self.parameters),
            name or reward.name,
            limit=(current_settings().reward_timeout or TIME_LIMIT) if reward.cost == "process" else None,
        )

    def in_frame(self: _T, frame: str | None) -> _T:
        """Set the frame that the model's family writes in, unless one is declared; returns itself."""
        default = self.reward.parameters.get("frame")
        if frame and default and "frame" not in self.parameters:
            self.parameters["frame"] = frame
            if frame != default:
                say(f"reward {self.name!r}: answers are read in {frame}, as its model writes")
        return self

    async def scored(self, batch: Batch) -> list[Score]:
        """The scores of a batch; its columns and its coordinate frame are looked at."""
        not_set = self.reward.parameters.keys() - self.parameters.keys() - _WORDS_OF_DATA
        for name in sorted(not_set & batch.columns.keys()):
            fix = f"{name}=... goes behind its name in --reward_funcs, or into {SETTING}"
            say(f"reward {self.name!r} does not read column {name!r}: {fix}")
        scores = await super().scored(batch)
        if "frame" in self.reward.parameters:
            self._look_at_frame(batch, {row: score for row, score in enumerate(scores) if score is not None})
        return scores

    def _look_at_frame(self, batch: Batch, scores: Mapping[int, float]) -> None:
        """Say if another frame fits a low batch much better. It changes no score: frames are declared."""
        low, extent = self.reward.low, self.reward.high - self.reward.low
        if not scores or fmean(scores.values()) >= low + LOW * extent:
            return
        frame = self.parameters.get("frame") or self.reward.parameters["frame"]
        declared = (frame, self.parameters.get("gold_frame") or frame)
        samples = [(batch.completions[row], self.with_gold(batch.row(row))) for row in list(scores)[:SAMPLES]]
        means: dict[tuple[object, object], float] = {}
        for answers, golds in [declared, *product(FRAMES, FRAMES)]:
            parameters: dict[str, Any] = {**self.parameters, "frame": answers, "gold_frame": golds}
            there = [self.reward.outcome(*sample, **parameters).score for sample in samples]
            means[answers, golds] = fmean(low if score is None else score for score in there)
        best = max(means, key=means.__getitem__)  # among equals the first, the declared one
        if means[best] >= means[declared] + GAIN * extent:
            say(
                f"reward {self.reward.name!r}: the answers look like {best[0]} and the gold like {best[1]} "
                f"(mean score {means[best]:.2f}), but frame is {declared[0]} and gold_frame {declared[1]} "
                f"({means[declared]:.2f}); set them in {SETTING}",
                about=f"frame of {self.reward.name}",
            )


class AwaitedOfCatalogue(OfCatalogue, AwaitedScored):
    """The same for a reward that waits for others."""
