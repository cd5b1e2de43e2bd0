"""Broken rows where the host encodes row by row (SFT, DPO): named and counted, or refused before the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from swift.template import MaxLengthError
from swift.utils import get_logger, remove_response

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.prompts import key_of_row
from swift_grpo_ext.models.text import label
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.row_search import row_number

logger = get_logger()
# What the host's templates raise for a row of another form, such as a box of an image that is not there.
HOST_REFUSES = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ZeroDivisionError)
_LONGEST = 160  # characters of an error of the host's
_SHOWN = 5
_THREADS = 8


class SkippedRowError(DatasetRowError, MaxLengthError):
    """A broken row that was named already: the host goes on to another without printing a traceback."""


def problem_of(error: Exception, row: Mapping[str, Any]) -> str:
    """What is wrong with a row, and where, in one line."""
    if isinstance(error, DatasetRowError):
        return f"{error.what} [{error.where}]" if error.where else error.what
    said = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    return f"it cannot be encoded: {said} [{label(row['messages'])}]"


def refusal(problems: Iterable[str]) -> DatasetRowError:
    """The error that ends a run for its broken rows: their number and the first of them."""
    found = list(problems)
    return DatasetRowError(
        f"{len(found)} broken row{'s' if len(found) > 1 else ''}: {'; '.join(found[:_SHOWN])}",
        fix="fix or remove them, or SWIFT_GRPO_EXT_BAD_ROW=skip to have them replaced",
    )


class NamedRows:
    """Encodes rows as a template does, and says which one it is that cannot be encoded.

    Args:
        encode: The template's ``encode``.
        dataset: Where the rows come from.
        skips: Whether the caller goes on to another row.
    """

    def __init__(self, encode: Callable[..., Any], dataset: Any, *, skips: bool) -> None:
        self.encode, self.dataset, self.skips = encode, dataset, skips
        self.told: dict[str, str] = {}

    def __call__(self, row: Mapping[str, Any], **options: Any) -> Any:
        """What the template makes of a row.

        Raises:
            SkippedRowError: It is broken; told once in a process.
            DatasetRowError: It is broken, and the caller does not go on.
            MaxLengthError: It is too long, which is the host's to say.
        """
        try:
            return self.encode(row, **options)
        except MaxLengthError:
            raise
        except (DatasetRowError, *HOST_REFUSES) as error:
            key = key_of_row(row)
            known, problem = key in self.told, self.told.get(key) or self._numbered(row, error)
        if not self.skips:
            raise refusal([problem])
        if not known:
            self.told[key] = problem
            count = f"broken rows of this process so far: {len(self.told)}"
            logger.warning(f"swift-grpo-ext: {problem}; another row takes its place ({count})")
        raise SkippedRowError(problem)

    def problems(self) -> dict[int, str]:
        """What is wrong with which row, by its place here: every row is tried, each rank its share."""
        rank, ranks = _place()
        logger.info(f"swift-grpo-ext: looking at {len(self.dataset)} rows")
        mine = range(rank, len(self.dataset), ranks)
        with ThreadPoolExecutor(_THREADS) as threads:
            found = zip(mine, threads.map(self._problem, mine), strict=True)
            return _of_all_ranks({number: problem for number, problem in found if problem}, ranks)

    def refuse(self) -> None:
        """Try every row.

        Raises:
            DatasetRowError: On every rank, with the number of broken rows and the first of them.
        """
        if found := self.problems():
            raise refusal(found.values())

    def _problem(self, number: int) -> str:
        row = self.dataset[number]
        try:
            self.encode(row)
        except MaxLengthError:
            return ""
        except (DatasetRowError, *HOST_REFUSES) as error:
            return self._numbered(row, error)
        return ""

    def _numbered(self, row: Mapping[str, Any], error: Exception) -> str:
        number = row_number(self.dataset, row)
        return f"row {'?' if number is None else number}: {problem_of(error, row)}"


def _place() -> tuple[int, int]:
    """This process's rank and the number of ranks, as far as they can talk to each other."""
    import torch.distributed as dist

    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)


def _of_all_ranks(found: dict[int, str], ranks: int) -> dict[int, str]:
    import torch.distributed as dist

    everywhere: list[Any] = [found] * ranks
    if ranks > 1:
        dist.all_gather_object(everywhere, found)
    return dict(sorted(item for of_rank in everywhere for item in of_rank.items()))


def good_rows_to_ask(template: Any, dataset: Any) -> Any:
    """Rows of a dataset that a model can be asked; the others are named and left out.

    Args:
        template: One of the package's.
        dataset: The host's rows, with or without answers.

    Raises:
        DatasetRowError: There are broken rows, and ``SWIFT_GRPO_EXT_BAD_ROW`` is ``raise``, or all are.
    """

    def encode(row: Mapping[str, Any]) -> Any:
        messages = [dict(message) for message in row["messages"]]
        remove_response(messages)
        return template.encode({**row, "messages": messages})

    found = NamedRows(encode, dataset, skips=True).problems()
    if found and (current_settings().bad_row == "raise" or len(found) == len(dataset)):
        raise refusal(found.values())
    for problem in found.values():
        logger.warning(f"swift-grpo-ext: {problem}; it is left out ({len(found)} broken rows)")
    return dataset.select([n for n in range(len(dataset)) if n not in found]) if found else dataset
