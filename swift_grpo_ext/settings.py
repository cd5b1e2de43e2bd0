"""Every switch of the package, read from ``SWIFT_GRPO_EXT_*``: a plugin cannot add flags to ms-swift."""

import os
from functools import cache
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from swift_grpo_ext.errors import SettingsError, nearest

PREFIX = "SWIFT_GRPO_EXT_"


# Settings of earlier versions, and what to do instead. A name counts as gone once `Settings` has lost it.
GONE_SETTINGS = {
    "attention": "--attn_impl chooses: flash_attn on a GPU in 16 bits its kernel for packs, all else SDPA",
    "agree_every": "engine and trainer are compared in the first three steps and in every 50th; "
    "SWIFT_GRPO_EXT_DISABLE=engine_check turns that off",
    "ddp_timeout": "give --ddp_timeout to ms-swift; without it ranks wait for each other 1800 s",
    "dead_after": "a fault that lasts three steps in a row is reported",
    "group_batch_tokens": "give --per_device_train_batch_size and SWIFT_GRPO_EXT_GROUP_BATCH=0",
    "held_out_share": "all rows of the validation set are answered; or fewer: --val_dataset 'rows.jsonl#64'",
    "image_store_mib": "an eighth of the free memory of a node is used, at most 8 GiB",
    "kl_every": "give a --beta above 0: ms-swift then logs the KL of every step",
    "reward_workers": "each rank has its share of the cores, at most 4 processes",
    "strict": "swift-grpo-ext env --all says what became of each patch",
    "turn_images": "pictures are used as they are stored; turn the files once: mogrify -auto-orient *.jpg",
    "vision_cache_mib": "the image features of a generation batch take at most 2 GiB",
}
# Features that `SWIFT_GRPO_EXT_DISABLE` once accepted.
GONE_FEATURES = {
    "balanced_ranks": "groups stay on their rank; leave the name out",
    "engine_old_logps": "old log-probs are never the engine's; leave the name out",
}
# Commands, and options of a command.
GONE_COMMANDS = {
    "check --all": "the last line names what was not checked; --json has every finding",
    "check --try-rewards": "swift-grpo-ext score rows.jsonl --reward mine --plugin mine.py "
    "--completions answers.jsonl calls your reward, and names the row on which it fails",
    "compare-engine": "the first steps of every run compare engine and trainer, and say where they differ",
    "report --live": "--report_to tensorboard (or wandb, swanlab) is live; without --live the page is "
    "written anew",
    "selftest": "every run compares its first forward with ms-swift's own; gains.json says the result",
}


class Settings(BaseModel):
    """The package's switches. Each field is read from ``SWIFT_GRPO_EXT_<FIELD>``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    disable: tuple[str, ...] = Field(
        default=(),
        description="What to leave out, separated by commas: a part (rewards), a feature of one "
        "(trainer.vision_once, or vision_once alone), or a fix (compat.B1).",
    )
    special_tokens_in_text: Literal["plain", "control"] = Field(
        default="plain",
        description="What <|im_end|> and the like are when a user's message contains them: plain text, or "
        "control tokens as in the stock templates. Image placeholders are plain text either way.",
    )
    bad_row: Literal["skip", "raise"] = Field(
        default="skip",
        description="GRPO: a row whose image or tags are broken is replaced by another and counted, or "
        "ends the run where it is read.",
    )
    on_dead: Literal["warn", "stop"] = Field(
        default="warn",
        description="What to do with a run that cannot learn. warn: report why. stop: report why, and end "
        "the run.",
    )
    on_stall: Literal["warn", "abort"] = Field(
        default="warn",
        description="What to do when a phase lasts too long. warn: report it, with the stacks of all "
        "threads. abort: also end the run, with exit status 75.",
    )
    stall_seconds: float | None = Field(
        default=None,
        gt=0,
        description="How long a phase may last before it counts as stalled, in seconds; unset: learned, "
        "five times the longest so far and at least two minutes, half an hour for the first of its kind.",
    )
    group_batch: bool = Field(
        default=True,
        description="Micro-batches of the same completions per step that hold as much of a group as fits. 0: "
        "what per_device_train_batch_size and gradient_accumulation_steps say.",
    )
    console: Literal["line", "figures", "all"] = Field(
        default="line",
        description="What a step prints and logs. line: one line of at most 120 characters is printed, and "
        "of our own figures at most 15 are logged, to logging.jsonl and trackers. figures: the line, and all "
        "figures are logged. all: all are logged, and printed as ms-swift does.",
    )
    held_out_stop: int = Field(
        default=0,
        ge=0,
        description="Save and stop after so many evaluations on held-out rows in a row without a better one. "
        "0: never.",
    )
    preflight: Literal["off", "only"] = Field(
        default="off",
        description="only: check the command line before a model is loaded, print what is found, and end.",
    )
    reward_table: str = Field(
        default="",
        description="Parameters, tasks and golds of rewards: JSON, or the path of a JSON file.",
    )
    reward_timeout: float | None = Field(
        default=None,
        gt=0,
        description="Seconds that a reward may take for one completion. Set: every reward function, also a "
        "user's own, runs one completion at a time in processes that are killed at the limit.",
    )
    reward_failures: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of a reward's last 1000 completions on all ranks that may fail by the reward's "
        "fault before the run ends. 0: the first failure ends it. It ends in any case when all completions "
        "of a reward's first two batches failed.",
    )

    @field_validator("disable", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    def disables(self, *names: str) -> bool:
        """True if a feature (``trainer.vision_once``) is off by its full or short name or its part."""
        return any({name, *name.split(".", 1)} & set(self.disable) for name in names)


def load_settings() -> Settings:
    """The settings in this process's environment.

    Raises:
        SettingsError: A variable is gone (what to do instead is named) or unknown (the nearest name is), or
            its value is out of range.
    """
    fields = {PREFIX + field.upper(): field for field in Settings.model_fields}
    values = {}
    for name, value in os.environ.items():
        known = name.upper()
        if known in fields:
            values[fields[known]] = value
        elif known.startswith(PREFIX):
            if successor := GONE_SETTINGS.get(known.removeprefix(PREFIX).lower()):
                raise SettingsError("this setting is gone", where=name, fix=successor)
            raise SettingsError("unknown setting", where=name, fix=f"did you mean {nearest(known, fields)}?")
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        what = f"{first['msg']} (got {first['input']!r})"
        fix = Settings.model_fields[field].description or ""
        raise SettingsError(what, where=PREFIX + field.upper(), fix=fix) from None


@cache
def current_settings() -> Settings:
    """The settings of this process, read once."""
    return load_settings()


def disabled(feature: str) -> bool:
    """True if ``SWIFT_GRPO_EXT_DISABLE`` has a feature's full or short name, or its part."""
    return current_settings().disables(feature)
