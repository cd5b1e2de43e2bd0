"""Ragged completions: padding in micro-batches, and how many more tokens than the mean the busiest rank has.

    python benchmarks/balance.py

Lengths are drawn with a seed: log-normal with a spread (sigma) of 0.7 around a prompt's own median, at most
1,024; medians are drawn alike around 200. Prompts have 200 to 1,400 tokens. Groups of 8; each rank forwards
a group at a time, as our cut into micro-batches does. The figures are means over 200 steps.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from swift_grpo_ext.group.balance import EVEN, dealt, imbalance
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows

GROUP, STEPS = 8, 200
LONGEST, MEDIAN, SPREAD = 1024, 200, 0.7
PROMPT = (200, 1400)


def drawn(numbers: random.Random) -> tuple[int, list[int]]:
    """A prompt's tokens, and those of its completions."""
    median = MEDIAN * numbers.lognormvariate(0, SPREAD)
    lengths = [median * numbers.lognormvariate(0, SPREAD) for _ in range(GROUP)]
    return numbers.randint(*PROMPT), [min(LONGEST, max(1, round(length))) for length in lengths]


def padding(prompt: int, completions: list[int]) -> tuple[float, float]:
    """Shares of what is forwarded that are padding: of rows side by side, and of our pack of them."""
    width = prompt + max(completions)
    real = sum(prompt + length for length in completions)
    columns = torch.arange(width)
    attention = torch.stack([columns < prompt + length for length in completions])
    losses = attention[:, prompt:]
    ids = torch.randint(50_000, attention.shape)
    ids[:, :prompt] = ids[0, :prompt]
    pack = build_pack(read_rows(ids, attention, losses), ids, losses, PackForm("dense"))
    padded = pack.layout.length - int(attention.flatten()[pack.source].sum())
    return 1 - real / (width * len(completions)), padded / pack.layout.length


def main() -> None:
    numbers = random.Random(0)
    groups = [drawn(numbers) for _ in range(STEPS)]
    rows, packs = zip(*(padding(*group) for group in groups), strict=True)
    print(f"padding of what is forwarded: rows {sum(rows) / STEPS:.1%}, packs {sum(packs) / STEPS:.1%}\n")
    print("| ranks | prompts of a rank in a step | as they come | dealt | steps above 10 % | and then |")
    print("|---|---|---|---|---|---|")
    for ranks in (2, 4, 8):
        for held in (2, 4, 8):
            steps = [
                [
                    [prompt + sum(done) for prompt, done in (drawn(numbers) for _ in range(held))]
                    for _ in range(ranks)
                ]
                for _ in range(STEPS)
            ]
            before = [imbalance(step) for step in steps]
            after = [
                imbalance([[step[rank][number] for rank, number in places] for places in dealt(step)])
                for step in steps
            ]
            cells = [f"{sum(shares) / STEPS:.1%}" for shares in (before, after)]
            over = [f"{sum(share > EVEN for share in shares) / STEPS:.0%}" for shares in (before, after)]
            print(f"| {ranks} | {held} | {' | '.join(cells)} | {' | '.join(over)} |")


if __name__ == "__main__":
    main()
