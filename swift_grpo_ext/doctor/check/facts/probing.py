"""Right, wrong and empty answers to a row, and what reward functions give them in a child process."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace

from swift_grpo_ext.doctor.check.facts.files import Row
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.rewards.runtime.pool import Answer, Pool

LIMIT = 15.0
"""Seconds that one request may take: a single completion at first, then all of them together."""


@dataclass(frozen=True)
class ProbeJob:
    """What the child loads: the host's rewards, ours, and those that the plugins register."""

    plugins: tuple[str, ...]
    catalogue: bool

    def warm_up(self) -> None:
        """Import the host's rewards; plugins are imported at the first request, which has a limit."""
        from swift_grpo_ext.rewards.registration import register_orms

        if self.catalogue:
            register_orms()

    def __call__(
        self,
        name: str,
        arguments: dict[str, object],
        completions: list[str],
        columns: dict[str, list[object]],
    ) -> list[float | None]:
        """The scores of some completions.

        Raises:
            RewardError: The reward returns what is no finite number.
        """
        from swift_grpo_ext.rewards.registration import function_named
        from swift_grpo_ext.rewards.runtime.batch import outcomes_of

        function = function_named(name, self.plugins, args=SimpleNamespace(**arguments))
        if not completions:
            return []
        state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
        output = function(completions, **columns, trainer_state=state)
        output = asyncio.run(output) if inspect.iscoroutine(output) else output
        outcomes = outcomes_of(output, len(completions), name)
        for outcome in outcomes:
            if outcome.score is None and outcome.reason:
                raise RewardError(f"it returns what is {outcome.reason}", fix="return None for no score")
        return [outcome.score for outcome in outcomes]


@lru_cache(maxsize=4)
def _pool(job: ProbeJob) -> Pool:
    return Pool(job, LIMIT, workers=1)


def ask(job: ProbeJob, name: str, arguments: dict[str, object], chosen: Sequence[Probe]) -> Answer:
    """Score completions with one reward function."""
    ((_, answer),) = _pool(job).answers([(name, arguments, *_as_batch(chosen))])
    return answer


FORMS = (
    "{}",
    "<answer>{}</answer>",
    "<think>\n-\n</think>\n<answer>\n{}\n</answer>",
    "<think>-</think><answer>{}</answer>",
    "\\boxed{{{}}}",
    "<think>-</think>\n<answer>\\boxed{{{}}}</answer>",
    "Answer: {}",
    '{{"answer": "{}"}}',
    '```json\n{{"answer": "{}"}}\n```',
)
GARBAGE = ("", "I do not know.")
LONG = "no " * 4000  # for rewards of length and repetition
NOT_GOLD = (
    *("messages", "images", "videos", "audios", "tools", "objects", "channel", "dataset"),
    *("chat_template_kwargs", "rejected_messages", "rejected_images", "positive_messages"),
    *("negative_messages", "teacher_prompt"),
)
_FIRST = ("solution", "ground_truth", "answer", "gt", "target", "label", "gold", "reference", "response")
_COLUMNS = 3
_WRONG = "-987654"


@dataclass(frozen=True)
class Probe:
    """One completion to score."""

    sample: Sample  # the row that it answers
    completion: str  # the text
    kind: str  # `right`, `wrong`, `garbage` or `long`
    # column and form of the answer, the same for a right one and its wrong one; or the garbage
    way: tuple[str, int] = ("", 0)


def probes(samples: Sequence[Sample]) -> list[Probe]:
    """All completions to score, a right one first."""
    chosen = []
    for sample in samples:
        for column in _columns(sample):
            right = _text(sample.columns[column])
            wrong = _wrong(column, right, samples)
            for number, form in enumerate(FORMS):
                chosen.append(Probe(sample, form.format(right), "right", (column, number)))
                chosen.append(Probe(sample, form.format(wrong), "wrong", (column, number)))
        if not _columns(sample):
            chosen.append(Probe(sample, "x", "other"))
        chosen += [Probe(sample, text, "garbage", (text, 0)) for text in GARBAGE]
        chosen.append(Probe(sample, FORMS[2].format("x"), "other"))
        chosen.append(Probe(sample, LONG, "long"))
    return chosen


def _as_batch(chosen: Sequence[Probe]) -> tuple[list[str], dict[str, list[object]]]:
    """Completions and columns, as ms-swift hands them to a reward function."""
    rows = [_as_row(probe, str(number)) for number, probe in enumerate(chosen)]
    names = sorted({name for row in rows for name in row})
    columns: dict[str, list[object]] = {name: [row.get(name) for row in rows] for name in names}
    return [probe.completion for probe in chosen], columns


def _as_row(probe: Probe, number: str) -> Row:
    return {
        **probe.sample.columns,
        "messages": [*probe.sample.prompt, {"role": "assistant", "content": probe.completion}],
        "response_token_ids": list(range(len(probe.completion.split()))),
        "finish_reason": "stop",
        "is_truncated": False,
        "request_id": number,
        "prompt_id": number,
    }


def _columns(sample: Sample) -> list[str]:
    """Columns that may hold the gold answer, the usual names first."""
    given = {name: value for name, value in sample.columns.items() if value not in (None, "", [])}
    own = [name for name in given if name not in NOT_GOLD]
    return sorted(own, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))[:_COLUMNS]


def _wrong(column: str, right: str, samples: Sequence[Sample]) -> str:
    """Another row's answer; if there is none, a number that nobody asks for."""
    others = [_text(sample.columns[column]) for sample in samples if sample.columns.get(column)]
    return next((text for text in others if text != right), _WRONG)


def _text(value: Json) -> str:
    """A gold value as a model would write it, without tags of its own."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if "<answer>" in text and "</answer>" in text:
        text = text.split("<answer>", 1)[1].split("</answer>", 1)[0]
    return text.strip()
