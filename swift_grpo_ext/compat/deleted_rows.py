"""F19: ``--truncation_strategy delete``: rows too long are replaced copy by copy, so groups mix prompts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS

TARGET = "swift.rlhf_trainers.rollout_mixin:RolloutTrainerMixin.resample_encode_failed_inputs"


def probe() -> bool:
    """True if each rank looks at its own copies alone."""
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    return "gather_object" not in inspect.getsource(RolloutTrainerMixin.resample_encode_failed_inputs)


def fix(resample: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a row, not its copies: all ranks agree on which cannot be encoded and on what comes instead."""

    @functools.wraps(resample)
    def resample_encode_failed_inputs(
        self: Any, inputs: list[Any], max_resample_rounds: int = 10, strip_response: bool = True
    ) -> list[Any]:
        from accelerate.utils import gather_object

        from swift_grpo_ext.models.prompts import key_of_row

        def encodes(row: Any) -> bool:
            return can_be_encoded(self.template, row, strip_response)

        for row in inputs if strip_response else ():
            _without_response(row)
        rows = {key_of_row(row): row for row in inputs}
        bad = sorted(set(gather_object([key for key, row in rows.items() if not encodes(row)])))
        taken = set(gather_object(list(rows)))
        found: dict[str, Any] = {}
        for attempt in range(max_resample_rounds * max(1, len(bad))):
            if len(found) == len(bad):
                break
            drawn = [row for row in next(self.truncated_resample_iterator) if encodes(row)]
            for row in gather_object(drawn):  # in the same order on every rank
                key = key_of_row(row)
                if len(found) < len(bad) and (key not in taken or attempt >= max_resample_rounds):
                    found[bad[len(found)]] = row
                    taken.add(key)
        if len(found) < len(bad):
            raise RuntimeError(
                f"resample: {len(bad)} rows of a batch cannot be encoded, and {len(found)} others were "
                "found. Increase `max_length` or adjust `truncation_strategy`."
            )
        return [found.get(key_of_row(row), row) for row in inputs]

    return resample_encode_failed_inputs


def can_be_encoded(template: Any, row: Any, strip_response: bool) -> bool:
    """Whether a template takes a row; why not is told."""
    from swift.utils import get_logger

    if strip_response:
        _without_response(row)
    try:
        template.encode(row)
    except Exception as error:  # as the host's: a model's processor raises what it likes
        get_logger().info(f"swift-grpo-ext: a row is replaced for all of its group: {error}")
        return False
    return True


def _without_response(row: Any) -> None:
    from swift.utils import remove_response

    remove_response(row["messages"])


PATCH = Patch(
    defect=DEFECTS["F19"],
    target=TARGET,
    fingerprint="self, inputs, max_resample_rounds=, strip_response=",
    probe=probe,
    fix=fix,
    remove_when="the host replaces a row for its whole group",
    after="swift.rlhf_trainers.rollout_mixin",
)
