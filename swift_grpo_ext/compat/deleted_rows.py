"""F19: ``--truncation_strategy delete``: rows too long are replaced copy by copy, so groups mix prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from swift_grpo_ext.compat.patch import in_source, patch
from swift_grpo_ext.errors import RefusedError

if TYPE_CHECKING:
    from swift.rlhf_trainers import GRPOTrainer
    from swift.template import Template

Row = Mapping[str, list[dict[str, object]]]
TARGET = "swift.rlhf_trainers.rollout_mixin:RolloutTrainerMixin.resample_encode_failed_inputs"


@patch(
    "F19",
    TARGET,
    fingerprint="self, inputs, max_resample_rounds=, strip_response=",
    probe=lambda: not in_source(TARGET, "gather_object"),  # each rank looks at its own copies alone
    remove_when="ms-swift replaces a row for its whole group",
)
def fix(
    _resample: Callable[..., object],
    trainer: GRPOTrainer,
    inputs: list[Row],
    max_resample_rounds: int = 10,
    strip_response: bool = True,
) -> list[Row]:
    """Replace a row, not its copies: all ranks agree on which cannot be encoded and on what comes instead.

    What comes instead is read from the dataset itself. The host's iterator has batches of the size of the
    training's, and where the dataset has fewer rows than that it goes round for ever without one.
    """
    from accelerate.utils import gather_object

    from swift_grpo_ext.models.dataset_rows import instead_of, key_of_row

    rows = {key_of_row(row): row for row in inputs}
    fits = partial(can_be_encoded, trainer.template, strip_response)
    bad = sorted(set(gather_object([key for key, row in rows.items() if not fits(row)])))
    if not bad:
        return inputs
    found = instead_of(bad, inputs, trainer.train_dataset, fits, trainer.accelerator.is_main_process)
    if len(found) < len(bad):
        raise RefusedError(
            f"{len(bad)} rows of a batch cannot be encoded, and {len(found)} others were found",
            where="--truncation_strategy delete",
            fix="a larger --max_length, or a dataset with more rows that fit",
        )
    return [found.get(key_of_row(row), row) for row in inputs]


def can_be_encoded(template: Template, strip_response: bool, row: Row) -> bool:
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
