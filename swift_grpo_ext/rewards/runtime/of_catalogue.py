"""A reward of the catalogue in a run: its parameters, the frame of its model, and what it says of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.contract import Columns, Outcome, Reward, Unscorable
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.ledger import say
from swift_grpo_ext.rewards.runtime.rules import SETTING, RewardTable, load_table
from swift_grpo_ext.rewards.runtime.scored import AwaitedScored, Scored, default_limit
from swift_grpo_ext.settings import current_settings

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
        self.reads = reward.columns
        self.gold = reward.gold
        self.on_timeout = reward.low  # an answer that cannot be checked is wrong
        self.first = (["<answer>0</answer>"], {key: ["0"] for key in reward.reads + reward.gold})
        super().__init__(
            partial(over_rows, reward, self.parameters),
            name or reward.name,
            limit=default_limit() if reward.cost == "process" else None,
            output_dir=getattr(arguments, "output_dir", None),
        )

    def in_frame(self: _T, frame: str | None) -> _T:
        """Set the frame that the model's family writes in, unless one is declared; returns itself."""
        default = self.reward.parameters.get("frame")
        if frame and default and "frame" not in self.parameters:
            self.parameters["frame"] = frame
            if frame != default:
                say(f"reward {self.name!r}: answers are read in {frame}, as its model writes")
        return self

    def note_columns(self, columns: Mapping[str, Sequence[object]]) -> None:
        """Say at the start which of several columns is the gold, and which mean something else."""
        for line in column_notes(self.reward, columns, self.rule.gold):
            say(line)

    def _unscored(self, reason: str, row: int, columns: Columns) -> str:
        values = {name: [columns[name]] for name in self.reward.row_settable if name in columns}
        return next(column_notes(self.reward, values), super()._unscored(reason, row, columns))


class AwaitedOfCatalogue(OfCatalogue, AwaitedScored):
    """The same for a reward that waits for others."""


def column_notes(
    reward: Reward, columns: Mapping[str, Sequence[object]], named: str | None = None
) -> Iterator[str]:
    """Notes for the user on a dataset's columns before it is read; `named` is the table's gold."""
    for name in reward.row_settable:
        try:
            for value in columns.get(name, ()):
                reward.row_parameters({name: value})
        except Unscorable:
            renamed = f"""--columns '{{"{name}": "{name}_of_data"}}'"""
            mistaken = f"column {name!r} is a parameter of rewards, and rows hold something else"
            yield f"{mistaken}: {renamed} renames it"
    golds = [name for name in reward.gold if any(value not in (None, "") for value in columns.get(name, ()))]
    if len(golds) > 1 and golds[0] != "solution" and not named:
        rest = " and ".join(map(repr, golds[1:]))
        table = f'{SETTING}={{"rewards": {{"{reward.name}": {{"gold": "{golds[1]}"}}}}}}'
        read = f"reward {reward.name!r} reads its gold from column {golds[0]!r}, not {rest}"
        yield f"{read}; {table} changes that"
