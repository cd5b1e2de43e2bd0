"""F19: ``--truncation_strategy delete``: rows too long are replaced copy by copy, so groups mix prompts."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import RefusedError

if TYPE_CHECKING:
    from swift.template import Template

TARGET = "swift.rlhf_trainers.rollout_mixin:RolloutTrainerMixin.resample_encode_failed_inputs"


def probe() -> bool:
    """True if each rank looks at its own copies alone."""
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    return "gather_object" not in inspect.getsource(RolloutTrainerMixin.resample_encode_failed_inputs)


def fix(resample: Callable[..., object]) -> Callable[..., object]:
    """Replace a row, not its copies: all ranks agree on which cannot be encoded and on what comes instead.

    What comes instead is read from the dataset itself. The host's iterator has batches of the size of the
    training's, and where the dataset has fewer rows than that it goes round for ever without one.
    """

    @functools.wraps(resample)
    def resample_encode_failed_inputs(
        trainer: Any, inputs: list[Any], max_resample_rounds: int = 10, strip_response: bool = True
    ) -> list[object]:
        from accelerate.utils import broadcast_object_list, gather_object

        from swift_grpo_ext.models.prompts import key_of_row

        rows = {key_of_row(row): row for row in inputs}
        failing = [
            key for key, row in rows.items() if not can_be_encoded(trainer.template, row, strip_response)
        ]
        bad = sorted(set(gather_object(failing)))
        if not bad:
            return inputs
        taken = set(gather_object(list(rows)))
        chosen: list[Any] = [None]
        if trainer.accelerator.is_main_process:
            tried = islice(_spare_rows(trainer), max_resample_rounds * len(inputs))
            chosen = [replacements(trainer.template, tried, len(bad), taken, strip_response)]
        found = broadcast_object_list(chosen)[0]
        if len(found) < len(bad):
            raise RefusedError(
                f"{len(bad)} rows of a batch cannot be encoded, and {len(found)} others were found",
                where="--truncation_strategy delete",
                fix="a larger --max_length, or a dataset with more rows that fit",
            )
        instead = dict(zip(bad, found, strict=True))
        return [instead.get(key_of_row(row), row) for row in inputs]

    return resample_encode_failed_inputs


def replacements(
    template: Template, tried: Iterable[Any], wanted: int, taken: Collection[str], strip_response: bool
) -> list[object]:
    """Rows that can be encoded: such as are not in the batch first, and each once."""
    from swift_grpo_ext.models.prompts import key_of_row

    new: dict[str, Any] = {}
    again: dict[str, Any] = {}
    for row in tried:
        key = key_of_row(row)
        if len(new) == wanted:
            break
        if key not in new and key not in again and can_be_encoded(template, row, strip_response):
            (again if key in taken else new)[key] = row
    return [*new.values(), *again.values()][:wanted]


def can_be_encoded(template: Template, row: Any, strip_response: bool) -> bool:
    """Whether a template takes a row; why not is told."""
    from swift.utils import get_logger, remove_response

    inputs = {**row, "messages": [dict(message) for message in row["messages"]]}
    if strip_response:
        remove_response(inputs["messages"])
    try:
        template.encode(inputs)
    except Exception as error:  # as the host's: a model's processor raises what it likes
        get_logger().info(f"swift-grpo-ext: a row is replaced for its whole group: {error}")
        return False
    return True


def _spare_rows(trainer: Any) -> Iterator[object]:
    """Rows of the training data, shuffled, and again from the start when all were there."""
    if not hasattr(trainer, "_spare_rows"):
        trainer._spare_rows = _over_and_over(trainer.train_dataset, trainer.args.seed)
    rows: Iterator[Any] = trainer._spare_rows
    return rows


def _over_and_over(dataset: Any, seed: int) -> Iterator[object]:
    numbers = random.Random(seed + 1)
    while True:
        if hasattr(dataset, "__len__"):
            order = numbers.sample(range(len(dataset)), len(dataset))
            rows = (dataset[number] for number in order)
        else:
            rows = iter(dataset)
        empty = True
        for row in rows:
            empty = False
            yield row
        if empty:
            return


PATCH = Patch(
    defect=DEFECTS["F19"],
    target=TARGET,
    fingerprint="self, inputs, max_resample_rounds=, strip_response=",
    probe=probe,
    fix=fix,
    remove_when="ms-swift replaces a row for its whole group",
    after="swift.rlhf_trainers.rollout_mixin",
)
