"""Dataset rows in the trainer: broken ones replaced, prompts told apart, image sizes for rewards."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from accelerate.utils import gather_object
from datasets import Dataset

from swift_grpo_ext.errors import DatasetRowError, RefusedError
from swift_grpo_ext.models import dataset_rows
from swift_grpo_ext.models.template import VisionTemplate, images_in
from swift_grpo_ext.models.text import HOST_REFUSES, why_no_completion
from swift_grpo_ext.ms_swift.shared import MaxLengthError, get_logger, remove_response
from swift_grpo_ext.once import Once
from swift_grpo_ext.rewards.gold.times import invented_times
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.host import Host, metrics_of
from swift_grpo_ext.trainer.row_names import row_name, row_number
from swift_grpo_ext.trainer.samples import Row, VisionSample

logger = get_logger()
_ROUNDS = 10
_THREADS = 8
_OTHER_COLUMNS = ("videos", "audios", "tools", "objects")  # that a prompt may have beside messages and images
_HOST_REPLACES = "fix or remove it, or --truncation_strategy delete to have ms-swift replace such rows"


class RowProblem(NamedTuple):
    """Problem of one row."""

    text: str
    too_long: bool = False  # the row is longer than ``--max_length`` and the user wants such rows deleted


RowProblems = dict[str, RowProblem]


def require_enough(rows: int, prompts: int) -> None:
    """Refuse a run of fewer rows than a generation batch has prompts.

    ms-swift would never fill a batch, and end without a step as if it had trained.

    Raises:
        RefusedError: There are too few rows.
    """
    if rows < prompts:
        raise RefusedError(
            f"{rows} rows do not fill a generation batch of {prompts} prompts: not one step would be trained",
            where="--dataset",
            fix="more rows, or a smaller --steps_per_generation or --per_device_train_batch_size",
        )


class Rows:
    """Rows on their way to samples.

    Those of templates that this package describes are tried before anything is generated for them, and those
    of others where ms-swift would (``--truncation_strategy delete``). All ranks agree on which are broken,
    and on what takes their place, so that a group stays a group wherever its members are.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._numbered_prompts = 0
        self._say = Once(logger.warning)
        self.bad = 0  # broken rows so far

    @property
    def _describes_template(self) -> bool:
        """This package describes the run's template."""
        return isinstance(self._host.template, VisionTemplate)

    @property
    def _deletes(self) -> bool:
        return bool(self._host.template.truncation_strategy == "raise")  # what ms-swift makes of "delete"

    def good(self, rows: Sequence[Row | VisionSample]) -> list[Any]:
        """The rows, once every broken one is replaced.

        Raises:
            RefusedError: Too few rows are short enough (``--truncation_strategy delete``).
            DatasetRowError: Too few rows are sound, or the settings ask to stop at a broken one.
        """
        if not (self._describes_template or self._deletes):
            return list(rows)
        for _ in range(_ROUNDS):
            keys = [dataset_rows.key_of_row(row) if isinstance(row, Mapping) else "" for row in rows]
            distinct = {key: row for key, row in zip(keys, rows, strict=True) if isinstance(row, Mapping)}
            bad = self._of_all_ranks(self._problems(distinct), distinct, self._rows_now())
            if not bad:
                return list(rows)
            self._judge_rows(bad)
            replaced = dataset_rows.instead_of(
                bad,
                rows,
                self._rows_now(),
                usable=lambda row: self._problem(row) is None,
                main=self._host.accelerator.is_main_process,
            )
            if len(replaced) < len(bad):
                break
            rows = [replaced.get(key, row) for key, row in zip(keys, rows, strict=True)]
        if all(problem.too_long for problem in bad.values()):
            raise RefusedError(
                f"{len(bad)} rows of a batch cannot be encoded, and {len(replaced)} others were found",
                where="--truncation_strategy delete",
                fix="a larger --max_length, or a dataset with more rows that fit",
            )
        what = f"{_in_words(bad)}; no sound row was found to take their place"
        raise DatasetRowError(what, fix="mend what all of these rows have in common")

    def named(self, samples: list[VisionSample]) -> list[VisionSample]:
        """Fresh samples with the key of their prompt: those of equal keys are a group."""
        for sample in samples:
            sample.images = sample.images or []  # None where only other rows of the dataset have images
            if invented := invented_times({**sample.extra, "videos": sample.videos}):
                self._say(f"swift-grpo-ext: {row_name(sample)}: {invented}", about="times of frames")
            if "<image>" in str(sample.messages) and not (sample.images or sample.videos):
                words = (
                    "has <image> in its text and neither an image nor a video: it is read as text -> is the "
                    """image in a column of another name? --columns '{"NAME": "images"}'"""
                )
                self._say(f"swift-grpo-ext: {row_name(sample)} {words}", about="tags")
            other = {name: getattr(sample, name) for name in _OTHER_COLUMNS}
            sample.prompt_key = dataset_rows.prompt_key(sample.messages, sample.images, other)
        return samples

    @contextmanager
    def named_in_errors(self, samples: Sequence[VisionSample]) -> Iterator[None]:
        """On an exception, name the rows that cannot be encoded: ms-swift's own templates do not."""
        dataset = self._rows_now()  # a failed rollout leaves the model in eval mode
        try:
            yield
        except Exception:
            if not self._describes_template:
                self._host.guard.run(
                    "names of rows that cannot be encoded", lambda: self._name_broken(samples, dataset)
                )
            raise

    def _name_broken(self, samples: Sequence[VisionSample], dataset: Dataset) -> None:
        columns = ("messages", "images", *_OTHER_COLUMNS)
        rows = {sample.prompt_key: {name: getattr(sample, name) for name in columns} for sample in samples}
        for problem in self._numbered(self._problems(rows), rows, dataset).values():
            logger.error(f"swift-grpo-ext: {problem.text} -> {_HOST_REPLACES}")

    def number_prompts(self, samples: list[VisionSample]) -> list[VisionSample]:
        """Give each sample the id of its prompt, images included; ms-swift looks at messages alone.

        Ids go on from batch to batch: with dynamic sampling, groups of several are compared side by side.
        """
        ids: dict[str, str] = {}
        for key in gather_object([sample.prompt_key for sample in samples]):
            ids.setdefault(key, f"prompt_{self._numbered_prompts + len(ids)}")
        self._numbered_prompts += len(ids)
        for sample in samples:
            sample.prompt_id = ids[sample.prompt_key]
            sample.request_id = f"chatcmpl-{uuid.uuid4().hex}"
        return samples

    def add_image_columns(self, samples: list[VisionSample]) -> None:
        """Give rewards the sizes of the images, and the log how many were prepared."""
        if not self._describes_template:
            return
        template = self._host.template
        for sample in samples:
            images = sample.images or images_in(sample.messages)
            sample.extra.update(template.image_columns(images, sample.extra))
        metrics = metrics_of(self._host)
        counts = template.images.store.counts
        metrics["bad_rows"].append(float(self.bad))
        metrics["images/reused"].append(counts.reused / max(1, counts.reused + counts.made))

    def _problems(self, rows: Mapping[str, Mapping[str, Any]]) -> RowProblems:
        """Problems of rows, by the same key; rows without a fault are left out."""
        with ThreadPoolExecutor(_THREADS) as threads:
            problems = zip(rows, threads.map(self._problem, rows.values()), strict=True)
            return {key: problem for key, problem in problems if problem}

    def _of_all_ranks(self, problems: RowProblems, rows: Mapping[str, Any], dataset: Dataset) -> RowProblems:
        """The broken rows of all ranks, with their numbers. Every rank calls it for every batch."""
        here = self._numbered(problems, rows, dataset)
        return {key: problem for of_rank in gather_object([here]) for key, problem in of_rank.items()}

    @staticmethod
    def _numbered(problems: RowProblems, rows: Mapping[str, Any], dataset: Dataset) -> RowProblems:
        """The problems, each with the number of its row."""
        numbered = {}
        for key, problem in problems.items():
            row = rows[key]
            number = row_number(dataset, row["messages"], row.get("images"), most=None)
            name = f"row {'?' if number is None else number}"
            numbered[key] = problem._replace(text=f"{name}: {problem.text}")
        return numbered

    def _problem(self, row: Mapping[str, Any]) -> RowProblem | None:
        messages = [dict(message) for message in row["messages"]]
        remove_response(messages)
        if problem := why_no_completion(messages):
            return RowProblem(problem)
        # Of other templates ms-swift would replace a row whatever a model's processor raises.
        refused = (DatasetRowError, *HOST_REFUSES) if self._describes_template else (Exception,)
        try:
            self._host.template.encode({**row, "messages": messages})
        except MaxLengthError as error:
            return RowProblem(str(error), too_long=True) if self._deletes else None
        except refused as error:
            return RowProblem(dataset_rows.problem_of(error, row))
        return None

    def _judge_rows(self, bad: RowProblems) -> None:
        """Count and name broken rows.

        Raises:
            DatasetRowError: The settings ask to stop at one; on every rank alike.
        """
        self.bad += len(bad)
        for problem in bad.values():
            logger.warning(f"swift-grpo-ext: {problem.text}; replaced by another row")
        if current_settings().bad_row == "raise" and not all(problem.too_long for problem in bad.values()):
            raise DatasetRowError(_in_words(bad), fix=dataset_rows.REPLACE)

    def _rows_now(self) -> Dataset:
        return self._host.train_dataset if self._host.model.training else self._host.eval_dataset


def _in_words(bad: RowProblems) -> str:
    return dataset_rows.in_words([problem.text for problem in bad.values()])
