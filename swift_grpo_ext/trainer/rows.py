"""Dataset rows in the trainer: broken ones replaced, prompts told apart, image sizes for rewards."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from accelerate.utils import broadcast_object_list, gather_object
from swift.template import MaxLengthError
from swift.utils import get_logger, remove_response

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.bad_rows import HOST_REFUSES, problem_of, refusal
from swift_grpo_ext.models.prompts import key_of_row, prompt_key
from swift_grpo_ext.models.template import VisionTemplate, images_in
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.row_search import other_rows, row_number

logger = get_logger()
_ROUNDS = 10
_THREADS = 8


class Problem(NamedTuple):
    """What is wrong with a row.

    Attributes:
        text: Says so, and where.
        too_long: The row is longer than ``--max_length`` and the user wants such rows deleted.
    """

    text: str
    too_long: bool = False


Problems = dict[str, Problem]


class CheckedRows:
    """Mixin of the host's GRPO trainer for rows of templates that this package describes.

    A row is tried before anything is generated for it. All ranks agree on which are broken, and on what
    takes their place, so that a group stays a group wherever its members are.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self.bad_rows = 0
        super().__init__(*args, **kwargs)
        if isinstance(self.template, VisionTemplate) and current_settings().bad_row == "raise":
            for dataset in (self.train_dataset, self.eval_dataset):
                self._refuse_bad_rows(dataset)

    def to_samples(self: Any, rows: list[Any]) -> list[Any]:
        """The host's samples of rows, once every broken row is replaced."""
        if isinstance(self.template, VisionTemplate):
            rows = self._without_bad_rows(rows)
        samples: list[Any] = super().to_samples(rows)  # type: ignore[misc]
        for sample in samples:
            sample.images = sample.images or []  # None where only other rows of the dataset have images
        return samples

    def resample_encode_failed_inputs(self: Any, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Leave rows that are too long to `to_samples`: the host replaces them copy by copy, group or not."""
        if isinstance(self.template, VisionTemplate):
            return inputs
        return super().resample_encode_failed_inputs(inputs, *args, **kwargs)  # type: ignore[misc]

    def _add_prompt_id_to_inputs(self: Any, samples: list[Any]) -> list[Any]:
        """Give each sample the id of its prompt, images included; the host looks at messages alone.

        Ids go on from batch to batch: with dynamic sampling, groups of several are compared side by side.
        """
        if not samples:
            return samples
        keys = [_key_of_sample(sample) for sample in samples]
        ids: dict[str, str] = {}
        first = getattr(self, "_prompts_numbered", 0)
        for key in gather_object(keys):
            ids.setdefault(key, f"prompt_{first + len(ids)}")
        self._prompts_numbered = first + len(ids)
        for sample, key in zip(samples, keys, strict=True):
            sample.prompt_id = ids[key]
            sample.request_id = f"chatcmpl-{uuid.uuid4().hex}"
        return samples

    def _compute_rewards_per_func(self: Any, samples: list[Any]) -> torch.Tensor:
        if isinstance(self.template, VisionTemplate):
            for sample in samples:
                images = sample.images or images_in(sample.messages)
                sample.extra.update(self.template.image_columns(images, sample.extra))
            self._log_images()
        return super()._compute_rewards_per_func(samples)  # type: ignore[misc]

    def _without_bad_rows(self: Any, rows: list[Any]) -> list[Any]:
        replaced: dict[str, Any] = {}
        for _ in range(_ROUNDS):
            rows = [replaced.get(key_of_row(row), row) if isinstance(row, Mapping) else row for row in rows]
            bad = self._agree_on_rows(self._row_problems(rows))
            if not bad:
                return rows
            self._judge_rows(bad)
            replaced = self._row_replacements(bad, rows)
        raise refusal(problem.text for problem in bad.values())

    def _row_problems(self: Any, rows: Iterable[Any]) -> Problems:
        """What is wrong with each distinct row, by its key; rows without a fault are left out."""
        distinct = {key_of_row(row): row for row in rows if isinstance(row, Mapping)}
        with ThreadPoolExecutor(_THREADS) as threads:
            found = dict(zip(distinct, threads.map(self._row_problem, distinct.values()), strict=True))
        rows_now = self._rows_now()
        return {
            key: self._numbered(distinct[key], problem, rows_now) for key, problem in found.items() if problem
        }

    def _row_problem(self: Any, row: Mapping[str, Any]) -> Problem | None:
        messages = [dict(message) for message in row["messages"]]
        remove_response(messages)
        try:
            self.template.encode({**row, "messages": messages})
        except MaxLengthError as error:
            deleted = self.template.truncation_strategy == "raise"  # what the host makes of "delete"
            return Problem(str(error), too_long=True) if deleted else None
        except (DatasetRowError, *HOST_REFUSES) as error:
            return Problem(problem_of(error, row))
        return None

    @staticmethod
    def _numbered(row: Mapping[str, Any], problem: Problem, dataset: Any) -> Problem:
        number = row_number(dataset, row)
        return problem._replace(text=f"row {'?' if number is None else number}: {problem.text}")

    def _agree_on_rows(self: Any, problems: Problems) -> Problems:
        """The broken rows of all ranks. Every rank calls it for every batch."""
        return {key: problem for found in gather_object([problems]) for key, problem in found.items()}

    def _judge_rows(self: Any, bad: Problems) -> None:
        """Count and name broken rows; raise, on every rank alike, if that is what the settings say."""
        self.bad_rows += len(bad)
        for problem in bad.values():
            logger.warning(f"swift-grpo-ext: {problem.text}; another row takes its place")
        if current_settings().bad_row == "raise" and not all(problem.too_long for problem in bad.values()):
            raise refusal(problem.text for problem in bad.values())

    def _row_replacements(self: Any, bad: Problems, rows: list[Any]) -> dict[str, Any]:
        """A good row for every broken one, chosen by the first rank."""
        chosen: list[Any] = [None]
        if self.accelerator.is_main_process:
            spares = other_rows(self._rows_now(), rows, bad)
            good = (row for row in spares if key_of_row(row) not in bad and not self._row_problem(row))
            chosen = [dict(zip(bad, good, strict=False))]
        found = broadcast_object_list(chosen)[0]
        if len(found) < len(bad):
            raise refusal(problem.text for problem in bad.values())
        return dict(found)

    def _refuse_bad_rows(self: Any, dataset: Any) -> None:
        """Try every row of a dataset, each rank its share.

        Raises:
            DatasetRowError: On every rank, with the number of broken rows and the first of them.
        """
        if dataset is None or not hasattr(dataset, "__len__"):
            return
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        mine = range(rank, len(dataset), ranks)
        logger.info(f"swift-grpo-ext: looking at {len(dataset)} rows (SWIFT_GRPO_EXT_BAD_ROW=raise)")
        with ThreadPoolExecutor(_THREADS) as threads:
            found = threads.map(lambda number: self._row_problem(dataset[number]), mine)
            problems = {
                str(number): self._numbered(dataset[number], problem, dataset)
                for number, problem in zip(mine, found, strict=True)
                if problem and not problem.too_long
            }
        if bad := self._agree_on_rows(problems):
            raise refusal(problem.text for problem in bad.values())

    def _rows_now(self: Any) -> Any:
        return self.train_dataset if self.model.training else self.eval_dataset

    def _log_images(self: Any) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        counts = self.template.images.store.counts
        metrics["bad_rows"].append(float(self.bad_rows))
        metrics["images/reused"].append(counts.reused / max(1, counts.reused + counts.made))


def _key_of_sample(sample: Any) -> str:
    other = {name: getattr(sample, name) for name in ("videos", "audios", "tools", "objects")}
    return prompt_key(sample.messages, sample.images, other)
