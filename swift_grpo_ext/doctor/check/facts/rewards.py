"""Names of a run's rewards, and the columns that they need."""

from collections.abc import Sequence
from contextlib import suppress

from swift_grpo_ext.doctor.check.facts.rows import SeenRow
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
    "trainer_state",
    "response_token_ids",
    "finish_reason",
    "is_truncated",
    "request_id",
    "prompt_id",
}


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
    columns = _OF_THE_TRAINER.union(*(sample.columns for sample in samples))
    if name in catalogue.NAMES:
        own = table_of(run).rule(name).gold
        gold = [own] if own else catalogue.get_reward(name).gold
        return "" if columns.intersection(gold) else " or ".join(gold)
    return next((name for name in host_table.table()["columns"].get(name, ()) if name not in columns), "")
