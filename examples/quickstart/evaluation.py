"""Greedy answers of a checkpoint, by transformers alone: neither the host nor this package takes part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_BATCH = 60
_NEW_TOKENS = 4


def greedy_answers(checkpoint: Path, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the model answers to each row when it always takes the likeliest token."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor, logging

    logging.disable_progress_bar()
    model = AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    processor.tokenizer.padding_side = "left"
    answers: list[str] = []
    for start in range(0, len(rows), _BATCH):
        batch = _encode(processor, rows[start : start + _BATCH])
        with torch.no_grad():
            tokens = model.generate(**batch, do_sample=False, max_new_tokens=_NEW_TOKENS)
        new = tokens[:, batch["input_ids"].shape[1] :]
        answers += processor.batch_decode(new, skip_special_tokens=True)
    return [answer.strip() for answer in answers]


def accuracy(answers: Sequence[str], rows: Sequence[dict[str, Any]]) -> float:
    """Percent of the answers that are the digit and nothing else."""
    right = sum(answer == row["solution"] for answer, row in zip(answers, rows, strict=True))
    return 100 * right / len(rows)


def _encode(processor: Any, rows: Sequence[dict[str, Any]]) -> Any:
    from PIL import Image

    prompts, images = [], []
    for row in rows:
        question = row["messages"][0]["content"].removeprefix("<image>")
        content = [{"type": "image"}, {"type": "text", "text": question}]
        prompts.append(
            processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            )
        )
        images.append([Image.open(row["images"][0]).convert("RGB")])
    return processor(images=images, text=prompts, return_tensors="pt", padding=True)


def spread(results: Sequence[tuple[float, float]]) -> str:
    """One line over several seeds: figures that hold on one machine and one seed alone say little."""
    columns = [*zip(*results, strict=True), [after - before for before, after in results]]
    warm, trained, gain = (f"{min(column):.1f} to {max(column):.1f}" for column in columns)
    return (
        f"held-out accuracy over {len(results)} seeds  warm start {warm} %  ->  GRPO {trained} %  "
        f"({gain} points gained)"
    )
