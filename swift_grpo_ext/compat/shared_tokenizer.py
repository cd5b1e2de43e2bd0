"""F50: with tokenizers before 0.23, threads that share one tokenizer fail with "Already borrowed"."""

import time
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch


@patch(
    "F50",
    "transformers:PreTrainedTokenizerFast.set_truncation_and_padding",
    fingerprint="self, padding_strategy, truncation_strategy, max_length, stride, pad_to_multiple_of, "
    "padding_side",
    probe=lambda: True,  # depends only on the tokenizers releases that the defect names
    remove_when="ms-swift takes tokenizers from 0.23 on alone",
    after="swift.template",
)
def fix(set_both: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Set truncation and padding once no other thread is encoding, which takes milliseconds.

    Raises:
        RuntimeError: For any other reason.
    """
    while True:
        try:
            return set_both(*args, **kwargs)
        except RuntimeError as error:
            if str(error) != "Already borrowed":
                raise
            time.sleep(0.001)
