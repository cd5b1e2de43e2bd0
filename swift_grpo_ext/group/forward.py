"""One forward of a pack: from the inputs of the ordinary batch to log-probs in its shape."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers.modeling_outputs import CausalLMOutput

from swift_grpo_ext.group.logps import TokenQuery, scores_for_logits
from swift_grpo_ext.group.media import ModelInputs
from swift_grpo_ext.group.shared_prefix import Pack


def packed_scores(
    model: Callable[..., CausalLMOutput],
    head: nn.Module,
    inputs: ModelInputs,
    pack: Pack,
    **options: Any,
) -> Float[Tensor, "batch keep 2"]:
    """Run the model over a pack: log-prob and entropy in fp32, 0 at tokens without a loss.

    ``options`` are those of `TokenQuery`.
    """
    kept = "logits_to_keep" in inputs

    def select(hidden: Float[Tensor, "1 _ hidden"]) -> Float[Tensor, "losses hidden"]:
        return hidden[0] if kept else hidden[0, pack.predictor]

    with scores_for_logits(head, TokenQuery(pack.ids, **options), select):
        return pack.scatter(model(**inputs).logits)


def row_scores(
    model: Callable[..., CausalLMOutput],
    head: nn.Module,
    inputs: ModelInputs,
    completion_mask: Shaped[Tensor, "batch keep"],
    **options: Any,
) -> Float[Tensor, "batch keep 2"]:
    """The scores of `packed_scores` through the ordinary batch; ``options`` as in `TokenQuery`."""
    losses = completion_mask.bool()
    keep = losses.shape[1]
    query = TokenQuery(inputs["input_ids"][:, -keep:][losses], **options)

    def select(hidden: Float[Tensor, "batch places hidden"]) -> Float[Tensor, "losses hidden"]:
        predicting = hidden[:, -keep - 1 : -1]
        # Without padding the columns may be all of the longest row, whose first token nothing predicts.
        return pad(predicting, (0, 0, keep - predicting.shape[1], 0))[losses]

    with scores_for_logits(head, query, select):
        scores = model(**inputs).logits
    return scores.new_zeros(*losses.shape, 2).masked_scatter(losses[..., None], scores)
