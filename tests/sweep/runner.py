"""Runs one configuration as the host does it and as we do it, and measures how far apart they are."""

import hashlib
import math
from contextlib import contextmanager
from dataclasses import dataclass

from pairs.cases import BASE
from pairs.scripted import SomeScores, allow_segments
from sweep.table import USERS_CUT
from sweep.trainers import Recorded
from swift.arguments.sft_args import SftArguments
from swift.rewards import ORM, orms
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns
from swift.trainers.trainer_factory import TrainerFactory

from swift_grpo_ext import register, testing
from swift_grpo_ext.plugin_files import plugin_file

ARGUMENTS = {"Stock": "swift.rlhf_trainers.GRPOConfig", "Ours": "swift_grpo_ext.trainer.arguments.GRPOConfig"}


def of_text(text, salt=""):
    return hashlib.sha256((salt + text).encode()).digest()[0]


class Score(ORM):
    """A number in 0 ... 1 of the completion's text."""

    def __call__(self, completions, **columns):
        return [of_text(text) / 255 for text in completions]


class Third(ORM):
    """Three values: groups of equal rewards come up."""

    def __call__(self, completions, **columns):
        return [of_text(text, "third") // 86 / 2 for text in completions]


class OfSome(ORM):
    """Half of the prompts: for the others it says nothing."""

    half = 0

    def __call__(self, completions, messages, **columns):
        asked = [str(one[-2]["content"]) for one in messages]
        return [
            of_text(text) / 255 if of_text(question, "half") % 2 == self.half else None
            for text, question in zip(completions, asked, strict=True)
        ]


class OfOthers(OfSome):
    """The other half."""

    half = 1


class Equal(ORM):
    """Nothing to learn from."""

    def __call__(self, completions, **columns):
        return [0.5] * len(completions)


class Again(MultiTurnScheduler):
    """Asks once more after each answer."""

    def step(self, infer_request, response_choice, current_turn):
        infer_request.messages.append({"role": "user", "content": f"And number {current_turn}?"})
        return {"infer_request": infer_request}


multi_turns["sweep_again"] = Again
REWARDS = {
    "score": Score,
    "third": Third,
    "of_some": OfSome,
    "of_others": OfOthers,
    "some": SomeScores,
    "equal": Equal,
}


@contextmanager
def trainer(kind, script):
    """Let the host build one of the two trainers, and know our rewards.

    SDPA by segments stands in for flash attention, which needs a GPU.
    """
    register()
    check = SftArguments._check_padding_free
    allow_segments()
    built, arguments = TrainerFactory.TRAINER_MAPPING["grpo"], TrainerFactory.TRAINING_ARGS_MAPPING["grpo"]
    orms.update(REWARDS)
    Recorded.script = script
    try:
        TrainerFactory.TRAINER_MAPPING["grpo"] = f"sweep.trainers.{kind}"
        TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = ARGUMENTS[kind]
        yield
    finally:
        SftArguments._check_padding_free = check
        TrainerFactory.TRAINER_MAPPING["grpo"] = built
        TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = arguments
        for name in REWARDS:
            orms.pop(name, None)


@dataclass
class Record:
    """What a run left: per micro-batch figures, and parameters before and after."""

    micro_batches: list
    start: dict
    end: dict


def record(kind, configuration, model, dataset, output):
    """Run a configuration with one of the two trainers."""
    options = {**BASE, "save_strategy": "no", "reward_funcs": "score", **configuration.options}
    arguments = testing.grpo_arguments(
        model, dataset, output / kind, external_plugins=plugin_file(), **options
    )
    with trainer(kind, configuration.script):
        testing.run_in_process("rlhf", arguments, {**USERS_CUT, **configuration.variables})
    latest, Recorded.latest = Recorded.latest, None
    return Record(latest.micro_batches, latest.start, latest.end)


@dataclass
class Apart:
    """Largest differences.

    Attributes:
        figures: Of each figure of a micro-batch, absolute; infinite where only one side has it.
        parameters: Relative to how far the stock run moved any parameter.
        moved: How far it did.
        ours: How far ours moved one.
    """

    figures: dict
    parameters: float
    moved: float
    ours: float


def apart(stock, ours):
    """Hold two runs against each other."""
    assert len(stock.micro_batches) == len(ours.micro_batches) > 0
    figures = {}
    for one, other in zip(stock.micro_batches, ours.micro_batches, strict=True):
        for name in {*one, *other}:
            a, b = one.get(name, math.inf), other.get(name, math.inf)
            difference = 0.0 if a == b or (math.isnan(a) and math.isnan(b)) else abs(a - b)
            figures[name] = max(figures.get(name, 0.0), math.inf if math.isnan(difference) else difference)
    assert set(stock.end) == set(ours.end)
    moved, own = (max(_distance(run.start[name], run.end[name]) for name in run.end) for run in (stock, ours))
    distance = max(_distance(ours.end[name], stock.end[name]) for name in stock.end)
    return Apart(figures, distance / moved if moved else distance, moved, own)


def _distance(one, other):
    return float((one.float() - other.float()).abs().max())
