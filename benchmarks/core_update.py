"""The update phase of one group, as ms-swift 4.6.0 computes it and as ``swift_grpo_ext/group`` does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bench_models import FURTHER, text_sizes
from bench_operations import Case
from bench_shapes import Shape
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a bare machine: nothing is installed

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.interface import take_packs
from swift_grpo_ext.group.micro_batch import images_in_order, pack_inputs, seen_from_host
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from swift_grpo_ext.group.vision import FeatureCache, Images, assign, image_numbers

IMAGE_TOKEN, VISION_START = 5, 3
LEARNING_SIGNAL = 0.05  # spread of the made-up reference: KL and its gradient are then not zero


@dataclass
class Batch:
    """One group as the host collates it, and what the loss needs."""

    inputs: dict[str, Tensor]
    mask: Tensor
    advantages: Tensor
    ref_shift: Tensor


def build_model(shape: Shape, device: torch.device, dtype: torch.dtype, checkpointing: bool) -> Any:
    """A random Qwen2.5-VL, or Qwen3.5 of a hybrid shape, on the device, tower frozen."""
    import transformers

    stem, text, vision = ("Qwen3_5", *_hybrid(shape)) if shape.hybrid else ("Qwen2_5_VL", *_attention(shape))
    config = getattr(transformers, f"{stem}Config")(
        text_config={
            **text_sizes(shape),
            "vocab_size": shape.vocab_size,
            "pad_token_id": 0,
            "tie_word_embeddings": shape.tie_word_embeddings,
            **text,
        },
        vision_config=vision,
        image_token_id=IMAGE_TOKEN,
        video_token_id=6,
        vision_start_token_id=VISION_START,
        vision_end_token_id=4,
        tie_word_embeddings=shape.tie_word_embeddings,
    )
    torch.manual_seed(0)
    with device:
        model = getattr(transformers, f"{stem}ForConditionalGeneration")._from_config(
            config, attn_implementation="sdpa", dtype=dtype
        )
    model.to(device).train()
    take_packs(model)  # the backend is chosen case by case
    model.model.visual.requires_grad_(False)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _hybrid(shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    text, vision, _ = FURTHER["qwen3_5"](shape, Case())
    return text, vision


def _attention(shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    pairs = shape.hidden_size // shape.num_heads // 2
    sections = [pairs // 4, (pairs - pairs // 4) // 2]
    sections.append(pairs - sum(sections))
    text = {
        "max_window_layers": shape.num_layers,
        "rope_scaling": {"type": "mrope", "mrope_section": sections},
        "rope_theta": 1e6,
    }
    vision = {
        "depth": shape.vision_depth,
        "hidden_size": shape.vision_hidden_size,
        "intermediate_size": shape.vision_intermediate_size,
        "num_heads": shape.vision_num_heads,
        "out_hidden_size": shape.hidden_size,
        "fullatt_block_indexes": sorted({*range(7, shape.vision_depth, 8), shape.vision_depth - 1}),
    }
    return text, vision


def build_batch(model: Any, case: Case, device: torch.device) -> Batch:
    """One prompt with an image, and random completions of equal length: the stock path's best case."""
    numbers = torch.Generator().manual_seed(1)
    vocab = model.config.get_text_config().vocab_size

    def text(*size: int) -> Tensor:
        return torch.randint(10, vocab, size, generator=numbers)

    image = torch.full((case.image_tokens,), IMAGE_TOKEN)
    prompt = torch.cat([torch.tensor([VISION_START]), image, torch.tensor([4]), text(case.text_tokens - 2)])
    ids = torch.cat([prompt.expand(case.group, -1), text(case.group, case.completion)], 1).to(device)
    height, width = case.grid
    seen = model.config.vision_config
    values = 3 * seen.temporal_patch_size * seen.patch_size**2
    pixels = torch.randn(height * width, values, generator=numbers).to(device)
    grid = torch.tensor([[1, height, width]], device=device)
    types_of = (ids == IMAGE_TOKEN).long()
    attention_mask = torch.ones_like(ids)
    positions, _ = model.model.get_rope_index(
        ids,
        mm_token_type_ids=types_of,
        image_grid_thw=grid.repeat(case.group, 1),
        attention_mask=attention_mask,
    )
    inputs = {
        "input_ids": ids,
        "attention_mask": attention_mask,
        "position_ids": positions,
        "pixel_values": pixels.repeat(case.group, 1),
        "image_grid_thw": grid.repeat(case.group, 1),
    }
    shape = (case.group, case.completion)
    shift = LEARNING_SIGNAL * torch.randn(shape, generator=numbers)
    advantages = torch.randn(case.group, 1, generator=numbers)
    return Batch(
        inputs, torch.ones(shape, dtype=torch.bool, device=device), advantages.to(device), shift.to(device)
    )


def embed(model: Any, ids: Tensor, features: Tensor) -> Tensor:
    """Token embeddings with the image features in their places, as the host's template makes them."""
    embeddings = model.get_input_embeddings()(ids)
    places = (ids == IMAGE_TOKEN)[..., None].expand_as(embeddings)
    return embeddings.masked_scatter(places, features.to(embeddings.dtype))


def tower(model: Any, pixels: Tensor, grid: Tensor | None) -> Tensor:
    """Features of some images: ``(tokens, hidden)``."""
    features = model.model.visual(
        pixels.to(model.dtype), grid_thw=None if grid is None else grid.to(pixels.device)
    )
    return getattr(features, "pooler_output", features)


def loss_of(logps: Tensor, old: Tensor | None, ref: Tensor | None, batch: Batch, beta: float) -> Tensor:
    """GRPO's clipped loss with the k3 estimate of the KL divergence (arXiv 2402.03300), epsilon 0.2."""
    ratio = (logps - (logps.detach() if old is None else old)).exp()
    signal = torch.min(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages)
    loss = -signal
    if ref is not None:
        distance = ref - logps
        loss = loss + beta * (distance.exp() - distance - 1)
    return loss.mean()


def stock_logps(model: Any, batch: Batch) -> Tensor:
    """Tower, embedding, whole rows and whole logits for every completion: what each stock pass computes."""
    inputs, keep = batch.inputs, batch.mask.shape[1]
    features = tower(model, inputs["pixel_values"], inputs["image_grid_thw"])
    logits = model(
        inputs_embeds=embed(model, inputs["input_ids"], features),
        attention_mask=inputs["attention_mask"],
        position_ids=inputs["position_ids"],
        logits_to_keep=keep + 1,
        use_cache=False,
    ).logits[:, :-1]
    targets = inputs["input_ids"][:, -keep:, None]
    if logits.dtype == torch.float32:
        normalizer = torch.stack([row.logsumexp(-1) for row in logits])
        return logits.gather(-1, targets)[..., 0] - normalizer
    rows = zip(logits, targets, strict=True)
    return torch.stack([row.log_softmax(-1).gather(-1, target)[..., 0] for row, target in rows])


def stock_update(model: Any, batch: Batch, beta: float) -> Tensor:
    """Old pass, ref pass, policy pass, backward. Returns the policy's log-probs."""
    with torch.no_grad():
        old = stock_logps(model, batch)
        ref = stock_logps(model, batch) + batch.ref_shift if beta else None
    logps = stock_logps(model, batch)
    loss_of(logps, old, ref, batch, beta).backward()
    return logps.detach().float()


def our_update(model: Any, batch: Batch, beta: float, backend: str, cache: FeatureCache) -> Tensor:
    """Group, pack, tower once, ref pass, policy pass, backward. Returns the policy's log-probs."""
    inputs, mask = batch.inputs, batch.mask
    cache.clear()
    seen = seen_from_host({**inputs, "completion_mask": mask})
    images = assign(seen["input_ids"] == IMAGE_TOKEN, inputs["pixel_values"], seen["image_grid_thw"])
    everything = range(len(images.keys))
    missing = cache.missing(images, everything)

    def encode(images: Images, which: list[int]) -> Tensor:
        return tower(model, images.pixels_of(which), images.grid_of(which)["image_grid_thw"])

    cache.encode(images, missing, encode)
    ids = seen["input_ids"]
    rows = read_rows(ids, seen["attention_mask"], seen["completion_mask"], image_numbers([images], ids))
    text_config = model.config.get_text_config()
    pack = build_pack(rows, ids, seen["completion_mask"], interface.pack_form(text_config, backend))
    shown = images_in_order(images, pack)
    pack = pack.on(mask.device)
    features = torch.cat([cache.features[images.keys[image]] for image in shown])
    text = {name: inputs[name] for name in ("input_ids", "attention_mask", "position_ids")}
    packed = pack_inputs(text, pack, {})
    ids = packed.pop("input_ids")

    def logps() -> Tensor:
        embeddings = embed(model, ids, features)
        given = {**packed, "inputs_embeds": embeddings}
        return packed_scores(model, model.lm_head, given, pack, vocab_size=text_config.vocab_size)[..., 0]

    with torch.no_grad():
        ref = logps() + batch.ref_shift if beta else None
    policy = logps()
    loss_of(policy, None, ref, batch, beta).backward()
    return policy.detach()
