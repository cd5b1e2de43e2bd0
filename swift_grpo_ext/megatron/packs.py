"""From one of ms-swift's micro-batches to a pack that Megatron takes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.media import Family
from swift_grpo_ext.group.micro_batch import MicroBatch, analyse
from swift_grpo_ext.group.shared_prefix import Pack
from swift_grpo_ext.group.tree import Node
from swift_grpo_ext.megatron.attention import PackParams, pack_params
from swift_grpo_ext.megatron.predictions import Predictions, predictions_of_pack

Inputs = dict[str, Any]
# Inputs that say how rows are packed or padded, for which a pack has its own.
_OF_ROWS = {
    "attention_mask",
    "attention_mask_2d",
    "labels",
    "loss_scale",
    "num_samples",
    "seq_lens",
    "grpo_batch",
}
_OF_TRANSFORMERS = {"attention_mask", "logits_to_keep", "use_cache"}


@dataclass
class SharedBatch:
    """A micro-batch in which prompts are shared."""

    batch: MicroBatch
    params: PackParams
    predictions: Predictions

    def inputs(self, encoded: bool) -> Inputs:
        """Inputs of the model; ``encoded``: features stand in for the pixels."""
        all_inputs = self.batch.forward_inputs(encoded)
        kept = {name: value for name, value in all_inputs.items() if name not in _OF_TRANSFORMERS}
        return {
            **kept,
            "labels": self.predictions.targets,
            "attention_mask": None,
            "packed_seq_params": self.params,
        }

    @property
    def signature(self) -> str:
        """Equal on ranks whose packs are."""
        layout = self.params.layout
        assert layout is not None
        return str(layout.nodes)


def analysed(
    inputs: Inputs,
    grpo_batch: GRPOBatch,
    family: Family | None,
    form: PackForm | None,
) -> MicroBatch:
    """Analysis of a micro-batch's images and, with a form of packs, of what its rows share."""
    # ms-swift's mask stands where a token is predicted.
    return analyse(_rows(inputs), grpo_batch.completion_mask.roll(1, -1), family, form)


def shared(batch: MicroBatch, labels: Tensor, multiple: int) -> SharedBatch | None:
    """The micro-batch with its shared tokens once, its length a multiple; None where its rows share none.

    ``labels`` are those that ms-swift collated, whose shape log-probs have.
    """
    if batch.pack is None or not batch.shares:
        return None
    pack = padded(batch.pack, multiple)
    batch = replace(batch, pack=pack)
    params = pack_params(pack.layout, batch.inputs["attention_mask"].sum(1))
    return SharedBatch(batch, params, predictions_of_pack(batch, labels))


def _rows(inputs: Inputs) -> dict[str, Tensor]:
    """The inputs as transformers' models would have them."""
    rows = {name: value for name, value in inputs.items() if name not in _OF_ROWS}
    if (present := inputs.get("attention_mask_2d")) is not None:
        rows["attention_mask"] = present.long()
    elif (hidden := inputs.get("attention_mask")) is not None:
        rows["attention_mask"] = (~hidden).any(2).any(1).long()
    return rows


def padded(pack: Pack, multiple: int) -> Pack:
    """The pack with padding tokens at its end, so that ranks can divide it."""
    rest = -pack.layout.length % multiple
    if not rest:
        return pack
    layout = pack.layout
    nodes = (*layout.nodes, Node(layout.length, rest))
    # A sampled token: a placeholder of an image would be counted as a feature.
    source = torch.cat([pack.source, pack.target[:1].expand(rest)])
    return replace(pack, layout=replace(layout, nodes=nodes, cache={}), source=source)
