"""A1, A2: lend labels to templates whose image merge needs them, and lift the length limit meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.compat.patch import patch
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import RefusedError

if TYPE_CHECKING:
    from swift.template import Template
    from torch import nn
    from transformers import PreTrainedModel


def probe() -> bool:
    """True if a template is asked to embed a batch without labels."""
    from types import SimpleNamespace

    import torch
    from swift.template.base import Template

    seen: list[bool] = []

    class LabelRecorder(Template):
        def __init__(self) -> None:
            self.max_length = None
            self.mode = "train"

        def _post_encode(self, model: nn.Module, inputs: dict[str, object]) -> dict[str, object]:
            seen.append("labels" in inputs)
            return inputs

    model = SimpleNamespace(device="cpu", forward=lambda input_ids: None)
    LabelRecorder().pre_forward_hook(model, (), {"input_ids": torch.zeros(1, 2, dtype=torch.long)})
    return seen == [False]


@patch(
    "A1",
    "swift.template.base:Template.pre_forward_hook",
    fingerprint="self, model, args, kwargs",
    probe=probe,
    remove_when="ms-swift hands labels, or a merge that does without them, to every template",
)
def fix(
    hook: Callable[..., Any], template: Template, model: PreTrainedModel, args: Any, kwargs: dict[str, Any]
) -> tuple[object, dict[str, object]]:
    """Lend the template ignored labels where a batch has none, as in GRPO, and remove them afterwards.

    The model never sees them: it would compute a loss. Meanwhile the template has no ``max_length``: some
    templates truncate the embeddings to it, and so lose the end of the completion.

    Raises:
        RefusedError: The embeddings still do not line up with the tokens.
    """
    input_ids = kwargs.get("input_ids")
    if input_ids is None or kwargs.get("labels") is not None:
        return hook(template, model, args, kwargs)
    lent = {**kwargs, "labels": input_ids.new_full(input_ids.shape, -100)}
    limit = template.max_length
    template.max_length = None
    try:
        args, made = hook(template, model, args, lent)
    finally:
        template.max_length = limit
    made.pop("labels", None)
    if template.is_training and (problem := misalignment(kwargs, made)):
        raise RefusedError(
            f"{problem}, so log-probs would be read from the wrong positions",
            where=f"--template {template.template_meta.template_type}",
            fix="a template that expands image tokens in _encode; Ovis2: swift-grpo-ext convert-ovis2 "
            f"({DEFECTS['A1'].reports[0]})",
        )
    return args, made


def misalignment(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Explain how positions counted from the end differ between tokens and embeddings; empty if they agree.

    Templates that expand image tokens inside the forward pass are fine as long as every row of the batch
    grows by the same number. The attention mask that they return shows how much each row has grown.
    """
    embedded = after.get("inputs_embeds", after.get("input_ids"))
    batch, tokens = before["input_ids"].shape
    if embedded is None or embedded.shape[1] == tokens:
        return ""
    grown = f"{tokens} tokens became {embedded.shape[1]} embeddings"
    if embedded.shape[1] < tokens:
        return grown
    mask = after.get("attention_mask")
    real = before.get("attention_mask")
    if batch == 1:
        return ""
    if mask is None or mask.shape != embedded.shape[:2]:
        return grown
    lengths = [tokens] if real is None else [tokens, real.sum(1)]
    growths = (mask.sum(1) - length for length in lengths)
    if any(bool((growth == growth[0]).all()) for growth in growths):
        return ""
    return f"{grown}, not by the same number in every row"
