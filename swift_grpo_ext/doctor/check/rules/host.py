"""The host's own checks of its arguments, run on the parsed values without a model or a device."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Problem, Rule, Severity

# Methods of the host's argument class in the order in which it calls them. Left out: those that load a model,
# open a connection, make folders, or look at this machine's devices.
CHECKS = (
    "_process_loss_type",
    "_init_grpo",
    "_init_max_completion_length",
    "_set_default",
    "_init_lazy_tokenize",
    "_handle_hf_removed_args",
    "_check_padding_free",
    "_check_sequence_parallel",
    "_check_teacher",
    "_check_grpo",
    "get_quantization_config",
)
_REFUSALS = (ValueError, AssertionError, NotImplementedError, ImportError)


@table.rule(
    "host-refuses",
    Severity.ERROR,
    symptoms=("ValueError: Liger loss ...", "ValueError: cached_dataset is not supported for GRPO."),
    cause="The host's own checks of its arguments, run before any model is loaded.",
)
def _none(run: Run) -> Iterator[Problem]:
    """In the table for its row; `findings` runs it after the other rules."""
    return iter(())


def findings(run: Run, found: Sequence[Finding]) -> list[Finding]:
    """What the host refuses and no rule has found, with the host's message.

    Args:
        run: The run.
        found: What the rules found.
    """
    seen = {finding.rule for finding in found}
    refused = []
    for message in messages(run):
        rule = row_of(message)
        if rule is not None and rule.id in seen:
            continue
        fix = rule.cause if rule is not None and rule.id != "host-refuses" else "as the message says"
        name = rule.id if rule is not None else "host-refuses"
        refused.append(Finding(name, Severity.ERROR, f"the host refuses it: {message}", "", fix))
    return refused


def messages(run: Run) -> Iterator[str]:
    """What the host's checks say, one message each."""
    from swift.arguments import RLHFArguments

    values = {
        name: value for name, value in run.arguments.values.items() if name not in run.arguments.unknown
    }
    args: Any = object.__new__(RLHFArguments)
    args.__dict__.update(
        values, remove_unused_columns=False, model_meta=None, model_info=None, global_world_size=1
    )
    with _quiet():
        for name in CHECKS:
            check = getattr(args, name, None)
            try:
                if check is not None:
                    check()
            except AttributeError:
                continue  # it looks at the model
            except _REFUSALS as error:
                yield f"{type(error).__name__}: {error}"


def row_of(message: str) -> Rule[Run] | None:
    """The rule whose symptom a message of the host is."""
    for rule in table.rules:
        for symptom in rule.symptoms:
            pattern = ".*".join(re.escape(part) for part in symptom.split("..."))
            if len(symptom) > 20 and re.search(pattern, message):
                return rule
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """No log, no variable set, no look at this machine's devices."""
    from swift.arguments import rlhf_args

    loggers = [logging.getLogger("swift"), logging.getLogger("ms-swift")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with patch.dict(os.environ), patch.object(rlhf_args, "is_mp", lambda: False):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
