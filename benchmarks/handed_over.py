"""What vLLM is handed for a group, before and after: requests, encoding, bytes over HTTP.

    PYTHONPATH=$PWD .swift_grpo_ext/envs/vllm/bin/python benchmarks/handed_over.py \\
        --group 8 --side 448 --json handed_over.json   # after make test-vllm has made that environment

Real runs of ``swift rlhf`` on a tiny Qwen2.5-VL with noisy images, colocated and against ``swift rollout``:
two prompts a step, each with ``--group`` completions. ``encode`` is ms-swift's template, ``prepare`` what
vLLM does to a request before it samples; both of the second step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
ONE_BY_ONE = {"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefill"}


def noisy_rows(folder: Path, side: int) -> Path:
    """Eight questions, each with an image of its own."""
    import numpy
    from PIL import Image

    numbers, rows = numpy.random.default_rng(0), []
    folder.mkdir(parents=True, exist_ok=True)
    for row in range(8):
        path = folder / f"{row}.png"
        Image.fromarray(numbers.integers(0, 255, (side, side, 3), dtype=numpy.uint8)).save(path)
        rows.append({"messages": [{"role": "user", "content": "<image>Which digit?"}], "images": [str(path)]})
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder / "train.jsonl"


def measure(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row for each way to hand over, in each mode."""
    from swift_grpo_ext import testing
    from tests.engines.conftest import HERE, TRAINER_PLUGINS, grpo_with_vllm, rollout_server

    model = testing.tiny_qwen2_5_vl(folder / "model", stock_vocabulary=True, max_pixels=asked.side**2)
    data = SimpleNamespace(train=noisy_rows(folder / "data", asked.side))
    chosen = {
        "num_generations": asked.group,
        "per_device_train_batch_size": 2 * asked.group,
        "max_length": 1024,
        "vllm_max_model_len": 1024,
        "max_steps": 2,
        "external_plugins": [*TRAINER_PLUGINS, HERE / "asked.py"],
    }
    rows = []
    for mode in ("colocate", "server"):
        for name, variables in (("each by itself", ONE_BY_ONE), ("once for a group", {})):
            out = folder / f"{mode}-{name.split()[0]}"
            out.mkdir()
            if mode == "colocate":
                grpo_with_vllm(model, data, out, variables, vllm_mode=mode, **chosen)
                last = testing.read_jsonl(out / "asked.jsonl")[-1]
            else:
                with rollout_server(model, out, {}, vllm_max_model_len=1024) as server:
                    grpo_with_vllm(model, data, out, variables, **server, **chosen)
                last = testing.read_jsonl(out / "sent.jsonl")[-1]
            rows.append({"mode": mode, "way": name, **last})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| mode | requests | completions of each | encode | prepare | bytes over HTTP |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = [f"{row[name] * 1e3:.0f} ms" if name in row else "" for name in ("encode", "prepare")]
        sent = f"{row['bytes']:,}" if "bytes" in row else ""
        cells = [f"{row['mode']}, {row['way']}", row["requests"], row["n"], *times, sent]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--side", type=int, default=448, help="pixels of the image's side")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ["MAX_PIXELS"] = str(asked.side**2)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(asked, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
