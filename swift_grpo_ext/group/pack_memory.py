"""How much memory the activations of a pack take: arithmetic over sizes, without torch.

The coefficients multiply widths. They were fitted to the live bytes of transformers 5.19's own modules in
bfloat16, on fake tensors (tests/doctor/test_activations.py measures them again); what experts, latent
attention and recurrent layers add is counted from the tensors that they make.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, Literal

Trained = Literal["full", "lora", "lora_with_dropout"]

CHECKPOINT = 2  # bytes per token and unit of width of a saved layer input
SCORED = 12  # bytes per position and vocabulary entry of one chunk of logits, its softmax and its gradient
CHUNK_BYTES = 256 * 2**20  # fp32 logits at a time
SHARE = 0.5  # of the free memory that the activations of a pack may take


# Bytes per token and unit of width (hidden, query, intermediate, kv) in one attention layer: inside one that
# is recomputed, at the worst moment of its backward pass, ...
RECOMPUTED: dict[Trained, tuple[float, ...]] = {
    "full": (13, 6, 12.3, 7.7),
    "lora": (42, 8.1, 14.0, 4.1),
    "lora_with_dropout": (66, 10.2, 20.0, 4.1),
}
# ... and what one without gradient checkpointing keeps from its forward to its backward pass.
KEPT: dict[Trained, tuple[float, ...]] = {
    "full": (16, 4, 8, 4),
    "lora": (31, 5.1, 10, 4),
    "lora_with_dropout": (41, 7.1, 13, 4),
}
# A routed copy of a token: gathered, weighted and scattered again, with gradients.
ROUTED = 10
# Per channel of a recurrent layer's keys and values: in 16 bits before, in 32 bits within the scan.
RECURRENT = 34
SCAN = 64  # tokens between two saved states of the scan


@dataclass(frozen=True)
class TextSizes:
    """Widths of a language model, as one token meets them."""

    layers: int  # layers of any kind
    hidden: int  # width
    query: int  # channels of all query heads
    kv: int  # channels of all key heads; with latent attention (MLA) the mean of key and value
    intermediate: int  # width of the MLP; of a mixture of experts that of the experts that one token meets
    vocab: int  # rows of the output layer
    routed: int = 0  # experts that one token is copied to
    recurrent: int = 0  # key and value channels of a recurrent (gated delta net) layer; 0 without one
    states: int = 0  # numbers of the state of one such layer
    attending: int = 0  # layers with attention, which keep keys and values

    def recomputed(self, trained: Trained) -> float:
        """Bytes of one token inside the layer that needs most."""
        return self._attended(RECOMPUTED[trained]) + self._beside

    def kept(self, trained: Trained) -> float:
        """Bytes of one token in one layer without gradient checkpointing."""
        return self._attended(KEPT[trained]) + 0.5 * self._beside

    def _attended(self, per_width: tuple[float, ...]) -> float:
        return sum(map(mul, per_width, (self.hidden, self.query, self.intermediate, self.kv)))

    @property
    def _beside(self) -> float:
        """Of experts and of the scan."""
        return ROUTED * self.routed * self.hidden + RECURRENT * self.recurrent + 4 * self.states / SCAN


def text_sizes(config: Mapping[str, Any]) -> TextSizes:
    """Sizes from the fields of a config; LookupError, ArithmeticError or TypeError where they are missing."""
    heads = config["num_attention_heads"]
    hidden = config["hidden_size"]
    head = config.get("head_dim") or hidden // heads
    query = heads * head
    kv = (config.get("num_key_value_heads") or heads) * head
    if config.get("kv_lora_rank"):  # latent attention builds whole keys and values
        key = (config.get("qk_nope_head_dim") or 0) + (config.get("qk_rope_head_dim") or 0)
        query = heads * key
        kv = heads * (key + (config.get("v_head_dim") or key)) // 2
    layers = config["num_hidden_layers"]
    kinds = config.get("layer_types") or ()
    recurrent = sum(kind == "linear_attention" for kind in kinds)
    keys = _product(config, "linear_num_key_heads", "linear_key_head_dim")
    values = _product(config, "linear_num_value_heads", "linear_value_head_dim")
    intermediate, routed = _mlp(config)
    return TextSizes(
        layers=layers,
        hidden=hidden,
        query=query,
        kv=kv,
        intermediate=intermediate,
        vocab=config["vocab_size"],
        routed=routed,
        recurrent=2 * (keys + values) if recurrent else 0,
        states=values * (config.get("linear_key_head_dim") or 0) if recurrent else 0,
        attending=layers - recurrent,
    )


def text_sizes_of(config: Any) -> TextSizes | None:
    """Sizes of the language model of a `PreTrainedConfig`; None where it does not name them."""
    text = config.get_text_config()
    # Fields that a family names differently (GPT-2's ``n_embd``) have the usual name, too.
    usual = {name: getattr(text, name, None) for name in text.attribute_map}
    try:
        return text_sizes({**text.to_dict(), **usual})
    except (LookupError, ArithmeticError, TypeError):
        return None


def _mlp(config: Mapping[str, Any]) -> tuple[int, int]:
    """Width of the MLP that one token meets, and to how many experts the token is copied."""
    each = config.get("moe_intermediate_size")
    chosen = config.get("num_experts_per_tok")
    dense = config.get("intermediate_size") or 0
    if not each or not chosen:
        return dense, 0
    shared = config.get("shared_expert_intermediate_size") or (config.get("n_shared_experts") or 0) * each
    return max(chosen * each + shared, dense if config.get("first_k_dense_replace") else 0), chosen


def _product(config: Mapping[str, Any], heads: str, width: str) -> int:
    return int((config.get(heads) or 0) * (config.get(width) or 0))


def way_trained(parameters: Iterable[Any]) -> Trained:
    """How the parameters of a model or of a layer are trained: all of them, or what adapters add to them."""
    sizes: Counter[bool] = Counter()  # of what is trained, and of what is not
    for each in parameters:
        # ZeRO-3 has replaced the elements of a parameter, and tells how many they were.
        sizes[each.requires_grad] += getattr(each, "ds_numel", each.numel())
    return "lora" if 4 * sizes[True] < sizes[False] else "full"


@dataclass(frozen=True)
class PackShape:
    """Sizes of one micro-batch whose prompt is forwarded once."""

    sizes: TextSizes  # the language model
    prompt: int  # tokens of the prompt, its images included
    completion: int  # most tokens of a completion
    trained: Trained = "lora"
    checkpointing: bool = True  # gradient checkpointing is on
    spare: bool = True  # layers may keep their activations (`layers_to_keep`)


def pack_bytes(shape: PackShape, completions: int) -> float:
    """Most bytes of activations of a pack of one prompt and some of its completions."""
    sizes = shape.sizes
    tokens = shape.prompt + completions * shape.completion
    held = row_bytes(sizes, tokens, shape.trained, shape.checkpointing)
    if shape.checkpointing and shape.spare:
        rows = completions * (shape.prompt + shape.completion)
        further = layers_to_keep(sizes, rows, tokens, shape.trained) - 1  # one is inside `row_bytes`
        held += further * tokens * sizes.kept(shape.trained)
    return held + chunk_of_logits(sizes, completions * shape.completion)


def layers_to_keep(sizes: TextSizes, rows: int, tokens: int, trained: Trained) -> int:
    """How many of the last layers may keep their activations: about half as many as would undo the saving.

    Each token that is in `rows` and not among the `tokens` of the pack would hold the inputs of all layers
    and one layer's activations. The last layer is kept in any case: the backward pass begins with it.
    """
    layer = sizes.kept(trained)
    saved = (rows - tokens) * (CHECKPOINT * sizes.layers * sizes.hidden + layer)
    return min(sizes.layers, max(1, round(saved / (2 * tokens * layer))))


def row_bytes(sizes: TextSizes, tokens: float, trained: Trained, checkpointing: bool) -> float:
    """Bytes of so many tokens in the decoder, forward and backward, without logits."""
    kept = CHECKPOINT * sizes.hidden if checkpointing else sizes.kept(trained)
    return tokens * (sizes.layers * kept + sizes.recomputed(trained))


def chunk_of_logits(sizes: TextSizes, predicted: float) -> float:
    """Bytes of the logits that are there at a time when log-probs are computed in chunks."""
    return min(predicted * sizes.vocab, CHUNK_BYTES / 4) * SCORED


def fits(shape: PackShape, completions: int, prompts: int, free_bytes: float) -> bool:
    """True if a pack takes no more than its share of the memory that weights and states leave free."""
    pack = replace(shape, prompt=prompts * shape.prompt)
    return pack_bytes(pack, completions) <= SHARE * free_bytes
