"""Collated batches as the host makes them, from lists of prompts and completions."""

import torch


def collate(rows, side="right", pad=0):
    """``rows`` is a list of ``(prompt, completion)`` token lists; a completion is ``(ids, mask)`` or ids."""
    rows = [
        (prompt, *(done if isinstance(done, tuple) else (done, [1] * len(done)))) for prompt, done in rows
    ]
    width = max(len(prompt) + len(ids) for prompt, ids, _ in rows)
    input_ids, attention, labels = [], [], []
    for prompt, ids, mask in rows:
        gap = width - len(prompt) - len(ids)
        tokens = [*prompt, *ids]
        marks = [-100] * len(prompt) + [
            token if keep else -100 for token, keep in zip(ids, mask, strict=True)
        ]
        left, right = (gap, 0) if side == "left" else (0, gap)
        input_ids.append([pad] * left + tokens + [pad] * right)
        attention.append([0] * left + [1] * len(tokens) + [0] * right)
        labels.append([-100] * left + marks + [-100] * right)
    labels = torch.tensor(labels)
    keep = int((labels.shape[-1] - (labels != -100).int().argmax(-1)).max())
    return {
        "input_ids": torch.tensor(input_ids),
        "attention_mask": torch.tensor(attention),
        "completion_mask": labels[:, -keep:] != -100,
    }
