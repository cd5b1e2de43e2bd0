"""Broken rows in inference: one of them ends the host's run, and what was answered before is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import Patch

TARGET = "swift.pipelines.infer.infer:SwiftInfer._prepare_val_dataset"


def fix(prepare: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Leave broken rows of our templates out before the first answer, by name, or refuse the run for them."""

    @functools.wraps(prepare)
    def _prepare_val_dataset(self: Any) -> Any:
        from swift_grpo_ext.models.template import VisionTemplate

        dataset = prepare(self)
        if not isinstance(self.template, VisionTemplate) or not hasattr(dataset, "select"):
            return dataset
        from swift_grpo_ext.models.bad_rows import good_rows_to_ask

        return good_rows_to_ask(self.template, dataset)

    return _prepare_val_dataset


PATCH = Patch(
    id="bad-rows-infer",
    breaks="one broken row ends swift infer in the middle, and the answers so far are lost",
    target=TARGET,
    fingerprint="self",
    affected={"ms-swift": ">=4.5,<4.7"},
    probe=lambda: True,
    fix=fix,
    upstream="https://github.com/modelscope/ms-swift/blob/main/swift/pipelines/infer/infer.py",
    remove_when="the host leaves rows out that cannot be encoded",
    after="swift.pipelines.infer.infer",
)
