"""F21: with ``--template_backend jinja`` the row that is trained on lacks the sampled tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import in_source, patch
from swift_grpo_ext.errors import RefusedError

if TYPE_CHECKING:
    from swift.template import StdTemplateInputs, Template


@patch(
    "F21",
    "swift.template.base:Template._encode",
    fingerprint="self, inputs",
    # Every message goes through the checkpoint's template, which handles only text.
    probe=lambda: not in_source("swift.template.base:Template._jinja_encode", "token_ids"),
    remove_when="ms-swift's jinja backend takes completions as token ids",
)
def fix(encode: Callable[..., dict[str, Any]], template: Template, inputs: StdTemplateInputs) -> object:
    """Append the sampled token ids to the prompt that the checkpoint's template writes.

    Raises:
        RefusedError: An earlier turn was sampled, too: its place in the prompt is unknown.
    """
    messages = inputs.messages
    completion = sampled_tokens(messages[-1]) if template.template_backend == "jinja" and messages else None
    if completion is None:
        return encode(template, inputs)
    if any(sampled_tokens(message) for message in messages[:-1]):
        raise RefusedError(
            "the jinja backend cannot put sampled tokens into an earlier turn",
            where="--template_backend jinja",
            fix="--template_backend swift for several turns",
        )
    inputs.messages = [*messages[:-1], {**messages[-1], "content": None}]
    try:
        encoded = encode(template, inputs)
    finally:
        inputs.messages = messages
    prompt = len(encoded["input_ids"])
    encoded["input_ids"] = [*encoded["input_ids"], *(token for token, _ in completion)]
    if encoded.get("labels") is not None:  # the prompt is not trained on
        encoded["labels"] = [-100] * prompt + [token if weight > 0 else -100 for token, weight in completion]
        if encoded.get("loss_scale") is not None:
            encoded["loss_scale"] = [0.0] * prompt + [weight for _, weight in completion]
    return encoded


def sampled_tokens(message: dict[str, object]) -> list[tuple[int, float]] | None:
    """The tokens of an assistant's message, each with its weight in the loss; None if it is text."""
    content = message.get("content")
    if isinstance(content, dict) and "token_ids" in content:
        pairs = zip(content["token_ids"], content["loss_scale"], strict=True)
        return [(int(token), float(weight)) for token, weight in pairs]
    if isinstance(content, list) and content and all(isinstance(token, int) for token in content):
        return [(token, 1.0) for token in content]
    return None
