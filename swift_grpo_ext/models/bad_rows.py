"""Broken rows: what ms-swift raises for them, and how they are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models.text import label

# What the host's templates raise for a row of another form, such as a box of an image that is not there.
HOST_REFUSES = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ZeroDivisionError)
_LONGEST = 160  # characters of an error of the host's
_SHOWN = 5


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
