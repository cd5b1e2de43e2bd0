"""Rows that share more than a prompt: as rows, with prompts shared, and as a tree, in one process.

    python benchmarks/tree.py --repeats 5 --json OUT

The four cases are turns of trajectories with a crop in each tool turn (a row for each turn), a tree search,
turns whose thoughts are gone from later rows, and completions that open alike by chance. Measured is a policy
pass with its backward pass over random weights of a small Qwen2.5-VL and Qwen3.5: medians of processor time,
taken in turn, and most memory above the weights. Rows run as ms-swift's micro-batches, padded: a trajectory,
or a branch, at a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from bench_measure import exact_heap, file_to_write, machine, peak_memory
from bench_shapes import Shape
from core_update import IMAGE_TOKEN, VISION_START, build_model, embed, tower
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores, row_scores
from swift_grpo_ext.group.micro_batch import images_in_order, pack_inputs
from swift_grpo_ext.group.shared_prefix import Pack, build_pack, read_rows
from swift_grpo_ext.group.tree import WORTH
from swift_grpo_ext.group.vision import Images, assign, image_numbers

MODELS = {
    "Qwen2.5-VL": Shape(128, 352, 4, 4, 2, 64, 128, 2, 2, 1024),
    "Qwen3.5": Shape(128, 352, 4, 4, 2, 64, 128, 2, 2, 1024, hybrid=True),
}
NO_SHARING_BUT_PROMPTS = 10**9  # tokens that nothing spares
PHOTO, CROP = (16, 16), (8, 8)  # patches: 64 and 16 tokens


@dataclass
class Row:
    """Tokens, whether each has a loss, and the numbers of its images in order."""

    ids: list[int] = field(default_factory=list)
    loss: list[bool] = field(default_factory=list)
    images: list[int] = field(default_factory=list)

    def __add__(self, other: Row) -> Row:
        return Row(self.ids + other.ids, self.loss + other.loss, self.images + other.images)


@dataclass
class Draw:
    """Random text, and images that are all different."""

    numbers: torch.Generator
    sizes: list[tuple[int, int]] = field(default_factory=list)  # patches of each image

    def text(self, count: int, loss: bool = False) -> Row:
        """So many tokens."""
        ids = torch.randint(10, 1024, (count,), generator=self.numbers).tolist()
        return Row(ids, [loss] * count)

    def image(self, size: tuple[int, int]) -> Row:
        """An image that no other row has yet."""
        self.sizes.append(size)
        ids = [VISION_START, *[IMAGE_TOKEN] * (size[0] * size[1] // 4), 4]
        return Row(ids, [False] * len(ids), [len(self.sizes) - 1])

    def prompt(self) -> Row:
        """150 tokens, an image among them."""
        return self.text(10) + self.image(PHOTO) + self.text(74)

    def tool(self) -> Row:
        """22 tokens: a crop."""
        return self.text(2) + self.image(CROP) + self.text(2)


Case = list[list[Row]]  # rows by trajectory, branch or micro-batch


def caterpillar(draw: Draw, thought: int = 0) -> Case:
    """Six turns of four trajectories; later rows do not have the ``thought`` tokens of a turn any more."""
    prompt = draw.prompt()
    trajectories = []
    for _ in range(4):
        history = prompt
        rows = []
        for _ in range(6):
            thinking, answer = draw.text(thought, loss=True), draw.text(78 - thought, loss=True)
            rows.append(history + thinking + answer)
            history = history + answer + draw.tool()
        trajectories.append(rows)
    return trajectories


def search(draw: Draw) -> Case:
    """A tree search of depth three with three branches each, a crop after each turn but the last."""

    def grow(history: Row, left: int) -> Iterator[Row]:
        for _ in range(3):
            if left == 1:
                yield history + draw.text(100, loss=True)
            else:
                yield from grow(history + draw.text(78, loss=True) + draw.tool(), left - 1)

    rows = list(grow(draw.prompt(), 3))
    return [rows[first : first + 9] for first in range(0, len(rows), 9)]


def openings(draw: Draw) -> Case:
    """Sixteen completions that agree by chance for up to twelve tokens."""
    prompt, opening = draw.prompt(), draw.text(12, loss=True)
    rows = []
    for _ in range(16):
        same = int(torch.randint(13, (), generator=draw.numbers))
        rows.append(prompt + Row(opening.ids[:same], opening.loss[:same]) + draw.text(100, loss=True))
    return [rows[:8], rows[8:]]


CASES: dict[str, Callable[[Draw], Case]] = {
    "turns": caterpillar,
    "tree search": search,
    "edited turns": lambda draw: caterpillar(draw, thought=50),
    "chance openings": openings,
}


class Bench:
    """One model and one case."""

    def __init__(self, shape: Shape, case: str) -> None:
        self.model = build_model(shape, torch.device("cpu"), torch.float32, checkpointing=False)
        draw = Draw(torch.Generator().manual_seed(1))
        self.micro_batches = CASES[case](draw)
        seen = self.model.config.vision_config
        values = 3 * seen.temporal_patch_size * seen.patch_size**2
        self.pixels = [torch.randn(h * w, values, generator=draw.numbers) for h, w in draw.sizes]
        self.grids = [[1, h, w] for h, w in draw.sizes]
        self.calls = 0  # of the tower
        self.encoded = 0  # images

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for rows in self.micro_batches for row in rows]

    def collated(self, rows: Sequence[Row]) -> tuple[dict[str, Tensor], Tensor]:
        """The model's inputs of some rows, padded on the right, and where they have a loss."""
        ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
        loss = pad_sequence([torch.tensor(row.loss) for row in rows], batch_first=True)
        present = pad_sequence([torch.ones(len(row.ids)) for row in rows], batch_first=True).long()
        images = [image for row in rows for image in row.images]
        grid = torch.tensor([self.grids[image] for image in images])
        positions, _ = self.model.model.get_rope_index(
            ids, mm_token_type_ids=(ids == IMAGE_TOKEN).long(), image_grid_thw=grid, attention_mask=present
        )
        inputs = {"input_ids": ids, "attention_mask": present, "position_ids": positions}
        inputs |= {
            "pixel_values": torch.cat([self.pixels[image] for image in images]),
            "image_grid_thw": grid,
        }
        return inputs, loss[:, min(row.loss.index(True) for row in rows) :]

    def features(self, pixels: Tensor, grid: Tensor) -> Tensor:
        """The tower's, once."""
        self.calls += 1
        self.encoded += len(grid)
        return tower(self.model, pixels, grid)

    @property
    def vocabulary(self) -> int:
        """Width of the logits."""
        return int(self.model.config.get_text_config().vocab_size)

    def by_rows(self) -> Tensor:
        """Log-probs of all loss tokens, ms-swift's way: tower, whole rows, for each micro-batch."""
        done = []
        for rows in self.micro_batches:
            inputs, mask = self.collated(rows)
            features = self.features(inputs.pop("pixel_values"), inputs.pop("image_grid_thw"))
            given = {**inputs, "inputs_embeds": embed(self.model, inputs["input_ids"], features)}
            given["logits_to_keep"] = mask.shape[1] + 1
            ids = given["input_ids"]

            def model(input_ids: Tensor, **others: Any) -> Any:
                return self.model(**others, use_cache=False)

            options = {"vocab_size": self.vocabulary}
            scores = row_scores(model, self.model.lm_head, {**given, "input_ids": ids}, mask, **options)
            scores[..., 0].sum().backward()
            done.append(scores[..., 0].detach()[mask])
        return torch.cat(done)

    def packed(self, worth: int) -> tuple[Pack, dict[str, Tensor], Images, list[int]]:
        """The pack of all rows, their inputs, their images and which of them it needs."""
        inputs, mask = self.collated(self.rows)
        placeholders = inputs["input_ids"] == IMAGE_TOKEN
        images = assign(placeholders, inputs.pop("pixel_values"), inputs.pop("image_grid_thw"))
        shown = image_numbers([images], inputs["input_ids"], inputs["position_ids"])
        rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask, shown, inputs["position_ids"])
        form = interface.pack_form(self.model.config.get_text_config(), "sdpa")
        pack = build_pack(rows, inputs["input_ids"], mask, form, worth=worth)
        return pack, inputs, images, images_in_order(images, pack)

    def by_pack(self, worth: int) -> Tensor:
        """The same of one pack; an image goes through the tower once."""
        pack, inputs, images, order = self.packed(worth)
        first: dict[Any, int] = {}
        for image in order:
            first.setdefault(images.keys[image], image)
        distinct = list(first.values())
        features = self.features(images.pixels_of(distinct), images.grid_of(distinct)["image_grid_thw"])
        parts = dict(zip(first, features.split([images.tokens[image] for image in distinct]), strict=True))
        given = pack_inputs(inputs, pack, {})
        embeddings = embed(
            self.model, given.pop("input_ids"), torch.cat([parts[images.keys[image]] for image in order])
        )
        given["inputs_embeds"] = embeddings
        scores = packed_scores(self.model, self.model.lm_head, given, pack, vocab_size=self.vocabulary)[
            ..., 0
        ]
        scores.sum().backward()
        return scores.detach()[self.collated(self.rows)[1]]


def measure(name: str, case: str, repeats: int) -> dict[str, Any]:
    """Medians of all three ways, and how far their log-probs are apart."""
    bench = Bench(MODELS[name], case)
    ways: dict[str, Callable[[], Tensor]] = {
        "rows": bench.by_rows,
        "prompts": lambda: bench.by_pack(NO_SHARING_BUT_PROMPTS),
        "tree": lambda: bench.by_pack(WORTH),
        "every run": lambda: bench.by_pack(1),
    }
    result: dict[str, Any] = {"model": name, "case": case}
    tokens = sum(len(rows) * max(len(row.ids) for row in rows) for rows in bench.micro_batches)
    worths = {"prompts": NO_SHARING_BUT_PROMPTS, "tree": WORTH, "every run": 1}
    sizes = {"rows": tokens} | {way: bench.packed(worth)[0].layout.length for way, worth in worths.items()}
    sums = {}
    for way, run in ways.items():
        bench.calls = bench.encoded = 0
        with peak_memory(torch.device("cpu")) as peak:
            bench.model.zero_grad()
            sums[way] = run().sort().values
        result[way] = {
            "tokens": sizes[way],
            "tower_calls": bench.calls,
            "images": bench.encoded,
            "peak_mib": round(peak.above / 2**20),
        }
    result["difference"] = max(float((sums[way] - sums["rows"]).abs().max()) for way in worths)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            bench.model.zero_grad()
            start = time.process_time()
            run()
            seconds[way].append(time.process_time() - start)
    for way, spent in seconds.items():
        result[way] |= {"seconds": statistics.median(spent), "spread": [min(spent), max(spent)]}
        ratios = [rows / own for rows, own in zip(seconds["rows"], spent, strict=True)]
        result[way] |= {"times": statistics.median(ratios), "times_spread": [min(ratios), max(ratios)]}
    return result


def report(result: dict[str, Any]) -> None:
    """Print one case."""
    print(f"{result['model']}, {result['case']}: log-probs within {result['difference']:.1e}")
    for way in ("rows", "prompts", "tree", "every run"):
        own = result[way]
        low, high = own["times_spread"]
        work = f"{own['tokens']:6} tokens, {own['images']:3} images in {own['tower_calls']} calls"
        speed = f"{own['seconds']:.2f} s: {own['times']:.1f} times ({low:.1f} to {high:.1f})"
        print(f"  {way:9} {work}, {own['peak_mib']:5} MiB, {speed}", flush=True)


def main() -> None:
    """Measure all cases, print a line each."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", choices=sorted(MODELS), action="append")
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--json", type=file_to_write)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    with exact_heap():
        for name in args.model or MODELS:
            for case in args.case or CASES:
                results.append(measure(name, case, args.repeats))
                report(results[-1])
    if args.json:
        found = {"machine": machine(torch.device("cpu")), "results": results}
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
