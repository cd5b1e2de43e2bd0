"""Where gated delta nets have the two functions by which they mix tokens."""

import sys
from typing import Any

CONVOLUTION = "causal_conv1d_fn"
DELTA_RULE = "torch_chunk_gated_delta_rule"


def home_of(layer: Any) -> tuple[Any, str]:
    """The object that has the functions which a layer calls, and the delta rule's name in it.

    Before transformers 5.15 a layer has both itself; its convolution is None where no kernel is installed.
    """
    own = layer, "chunk_gated_delta_rule"
    return own if hasattr(*own) else (sys.modules[type(layer).__module__], DELTA_RULE)
