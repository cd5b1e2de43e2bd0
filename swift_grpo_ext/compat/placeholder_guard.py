"""C3: vLLM must not sample image placeholders or indicators; re-encoded, they crash or change a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.models.families import forbidden_token_ids

if TYPE_CHECKING:
    from swift.infer_engine import RequestConfig


@patch(
    "C3",
    "swift.infer_engine.vllm_engine:VllmEngine._prepare_generation_config",
    fingerprint="self, request_config",
    probe=lambda: True,
    remove_when="ms-swift forbids placeholder tokens in its sampling parameters",
)
def fix(prepare: Callable[..., Any], engine: Any, request_config: RequestConfig) -> object:
    """Add the family's forbidden tokens to what vLLM may not say, in colocate mode and in servers alike."""
    params = prepare(engine, request_config)
    if forbidden := forbidden_token_ids(engine.config, engine.tokenizer):
        tokens = engine.tokenizer.convert_ids_to_tokens(list(forbidden))
        # vLLM gives bad words a logit of -inf; a bias would be clamped to -100.
        params.bad_words = list(dict.fromkeys([*(params.bad_words or ()), *tokens]))
    return params
