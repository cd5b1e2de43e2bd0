"""F21: ``--template_backend jinja``: the sampled tokens are not in the row that is trained on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import groupby
from typing import Any

from swift_grpo_ext.compat.patch import Patch
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import RefusedError

TARGET = "swift.template.base:Template._jinja_encode"


def probe() -> bool:
    """True if every message goes through the checkpoint's template, which knows text alone."""
    from swift.template.base import Template

    return "token_ids" not in inspect.getsource(Template._jinja_encode)


def fix(jinja_encode: Callable[..., Any]) -> Callable[..., Any]:
    """Put a completion that is given as token ids behind the prompt as the checkpoint's template writes it.

    The host hands the ids to that template, which has no text for numbers: the row ends with an empty answer,
    and what is learned from is the end of a turn.
    """

    @functools.wraps(jinja_encode)
    def _jinja_encode(self: Any, inputs: Any) -> Any:
        messages = inputs.messages
        if any(sampled_ids(message) for message in messages[:-1]):
            raise RefusedError(
                "the jinja backend cannot put sampled tokens into an earlier turn",
                where="--template_backend jinja",
                fix="--template_backend swift for several turns",
            )
        completion = sampled_ids(messages[-1])
        if completion is None:
            return jinja_encode(self, inputs)
        inputs.messages = [*messages[:-1], {**messages[-1], "content": None}]
        try:
            prompt, weights, _ = jinja_encode(self, inputs)
        finally:
            inputs.messages = messages
        suffix = self.template_meta.suffix if inputs.extra_kwargs.get("add_eos") is True else []
        answer = [*completion, *((piece, 1.0) for piece in suffix)]
        pieces = [*prompt, *(piece for piece, _ in answer)]
        return pieces, [0.0] * len(weights) + [weight for _, weight in answer], len(answer)

    return _jinja_encode


def sampled_ids(message: dict[str, Any]) -> list[tuple[list[int], float]] | None:
    """The tokens of an assistant's message in runs of one loss weight; None if it is text."""
    content = message.get("content")
    if isinstance(content, dict) and "token_ids" in content:
        weighted = zip(content["token_ids"], content["loss_scale"], strict=True)
        runs = groupby(weighted, key=lambda pair: float(pair[1]))
        return [([token for token, _ in run], weight) for weight, run in runs]
    if isinstance(content, list) and content and all(isinstance(one, int) for one in content):
        return [(content, 1.0)]
    return None


PATCH = Patch(
    defect=DEFECTS["F21"],
    target=TARGET,
    fingerprint="self, inputs",
    probe=probe,
    fix=fix,
    remove_when="the host's jinja backend takes completions as token ids",
    after="swift.template.base",
)
