"""Broken rows in SFT: the host leaves them out with a page of traceback, and does not say which they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.settings import current_settings

TARGET = "swift.pipelines.train.sft:LazyLLMDataset"


def fix(lazy_dataset: Any) -> Callable[..., Any]:
    """The host's dataset; it names and counts broken rows of our templates, or refuses the run for them."""

    class RowsByName(lazy_dataset):
        @functools.wraps(lazy_dataset.__init__)  # type: ignore[misc]  # by which drift is told
        def __init__(self, dataset: Any, encode_func: Callable[..., Any], **options: Any) -> None:
            super().__init__(dataset, encode_func, **options)
            from swift_grpo_ext.models.template import VisionTemplate

            if isinstance(getattr(encode_func, "__self__", None), VisionTemplate):
                from swift_grpo_ext.models.bad_rows import NamedRows

                self.encode_func = NamedRows(encode_func, dataset, skips=not self.strict)
                if current_settings().bad_row == "raise":
                    self.encode_func.refuse()

    return RowsByName


PATCH = Patch(
    id="bad-rows",
    breaks="swift sft tells of a broken row with a traceback, ten times at most, and never which row it is",
    target=TARGET,
    fingerprint="dataset, encode_func, |, n_try_fetch=, strict=, random_state=, traceback_limit=",
    affected={"ms-swift": ">=4.5,<4.7"},
    probe=lambda: True,
    fix=fix,
    upstream="https://github.com/modelscope/ms-swift/blob/main/swift/dataset/utils.py",
    remove_when="the host names and counts the rows that it leaves out",
    after="swift.pipelines.train.sft",
)
