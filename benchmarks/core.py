"""The pure functions of ``swift_grpo_ext/group`` against the stock computation, with torch and transformers.

    python benchmarks/core.py --device cuda              the table of real shapes, a few minutes on one H100
    python benchmarks/core.py --device cpu               the small case

For each case it runs the update phase of one group (old, ref and policy log-probs, loss, backward; vision
tower frozen, all of the language model trained) as ms-swift 4.6.0 computes it, and then with the prompt and
the image computed once and without the old pass, with each attention backend. Random weights; no ms-swift,
no peft, no download.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from bench_measure import Peak, file_to_write, interleaved, machine, median, peak_memory, timed
from bench_operations import Case, bound, operations, work_of
from bench_shapes import SHAPES, Shape
from core_update import FeatureCache, build_batch, build_model, our_update, stock_update
from torch import Tensor

from swift_grpo_ext.group.self_check import limits, mismatch


def clear_gradients(model: Any) -> None:
    """Drop all gradients."""
    model.zero_grad(set_to_none=True)


def gradient_difference(model: Any, stock: dict[str, Tensor]) -> float:
    """Norm of the difference to the stock path's gradients over their norm."""
    above = below = 0.0
    for name, parameter in model.named_parameters():
        if name in stock:
            above += float((parameter.grad.float() - stock[name].float()).square().sum())
            below += float(stock[name].float().square().sum())
    return (above / below) ** 0.5


def peak_of(model: Any, run: Callable[[], Any], device: torch.device) -> Peak:
    """Peak memory of one update phase that starts without gradients."""
    clear_gradients(model)
    with peak_memory(device) as peak:
        run()
    return peak


def run_case(
    model: Any, shape: Shape, case: Case, backends: list[str], repeats: int, device: torch.device
) -> list[dict[str, Any]]:
    """Time and compare one case; a row of the table for each backend."""
    batch = build_batch(model, case, device)
    cache = FeatureCache(limit=2**40)

    def stock() -> Tensor:
        clear_gradients(model)
        return stock_update(model, batch, case.beta)

    def ours(backend: str) -> Callable[[], Tensor]:
        def run() -> Tensor:
            clear_gradients(model)
            return our_update(model, batch, case.beta, backend, cache)

        return run

    runs = {"stock": stock, **{backend: ours(backend) for backend in backends}}
    first = {name: timed(run, device)[0] for name, run in runs.items()}  # warm-up; compiles, where need be
    peaks = {name: peak_of(model, run, device) for name, run in runs.items()}
    expected_logps = stock()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    rows = []
    for backend in backends:
        logps = runs[backend]()
        difference = (logps - expected_logps).abs()
        allowed = limits(expected_logps, expected_logps, batch.mask, model.dtype)
        rows.append(
            {
                "backend": backend,
                "first_seconds": first[backend],
                "peak_bytes": peaks[backend].bytes,
                "stock_peak_bytes": peaks["stock"].bytes,
                "peak_memory_ratio": peaks[backend].bytes / peaks["stock"].bytes,
                "peak_above_weights_ratio": peaks[backend].above / peaks["stock"].above,
                "logp_max_diff": float(difference.max()),
                "logp_mean_diff": float(difference.mean()),
                "self_check": mismatch(logps, expected_logps, batch.mask, allowed) or "passes",
                "grad_rel_diff": gradient_difference(model, expected),
            }
        )
    clear_gradients(model)
    del expected
    seconds = interleaved(runs, repeats, device)
    # The arithmetic is that of attention; a hybrid's has no bound here.
    limit = None if shape.hybrid else bound(work_of(shape), case)
    stock_operations, _ = operations(work_of(shape), case)
    for row in rows:
        stock_seconds, ext_seconds = median(seconds["stock"]), median(seconds[row["backend"]])
        row |= {
            "stock_seconds": stock_seconds,
            "ext_seconds": ext_seconds,
            "ratio": stock_seconds / ext_seconds,
        }
        row |= {"bound": limit, "of_bound": limit and row["ratio"] / limit, "all_seconds": seconds}
        row["stock_tflops"] = None if shape.hybrid else 2e-12 * stock_operations / stock_seconds
    return rows


CASES = {
    "cuda": [("3b", 1000, 300), ("3b", 1000, 128), ("3b-hybrid", 1000, 128), ("7b", 2500, 300)],
    "cpu": [("mini", 576, 128), ("mini-hybrid", 576, 128)],
}
BACKENDS = {"cuda": ["sdpa", "varlen", "dense"], "cpu": ["sdpa", "dense"]}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"]
    )
    parser.add_argument("--cases", help="SIZE:IMAGE_TOKENS:COMPLETION,... such as 3b:1000:300")
    parser.add_argument("--backends", help="sdpa,varlen,dense")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], help="bfloat16 on a GPU, float32 on a CPU"
    )
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=file_to_write)
    return parser.parse_args()


def main() -> None:
    asked = read_arguments()
    device = torch.device(asked.device)
    dtype = getattr(torch, asked.dtype or ("bfloat16" if asked.device == "cuda" else "float32"))
    backends = asked.backends.split(",") if asked.backends else BACKENDS[asked.device]
    cases = CASES[asked.device]
    if asked.cases:
        cases = [
            (size, int(image), int(tail))
            for size, image, tail in (c.split(":") for c in asked.cases.split(","))
        ]
    rows: list[dict[str, Any]] = []
    model, built = None, ""
    print(f"{machine(device)}\n{HEADER}", flush=True)
    for size, image_tokens, completion in cases:
        case = Case(asked.group, image_tokens, 42, completion, asked.beta, not asked.no_checkpointing)
        if size != built:
            model = None
            model, built = build_model(SHAPES[size], device, dtype, case.checkpointing), size
        for row in run_case(model, SHAPES[size], case, backends, asked.repeats, device):
            rows.append({"size": size, **asdict(case), **row})
            print(line_of(rows[-1]), flush=True)
            if asked.json:
                result = {"machine": machine(device), "dtype": str(dtype), "rows": rows}
                asked.json.write_text(json.dumps(result, indent=1))


HEADER = (
    "size         P    C   G backend    stock s   ours s  ratio  bound  of it  peak  above weights  "
    "logp diff (mean)  grad diff  stock TFLOP/s  first s  self-check"
)


def _or_none(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def line_of(row: dict[str, Any]) -> str:
    prompt = row["image_tokens"] + row["text_tokens"]
    return (
        f"{row['size']:11}{prompt:5}{row['completion']:5}{row['group']:3} {row['backend']:10}"
        f"{row['stock_seconds']:9.3f}{row['ext_seconds']:9.3f}{row['ratio']:7.2f}"
        f"{_or_none(row['bound'], '.2f'):>7}"
        f"{_or_none(row['of_bound'], '.0%'):>7}{row['peak_memory_ratio']:6.2f}"
        f"{row['peak_above_weights_ratio']:10.2f}"
        f"{row['logp_max_diff']:15.1e} ({row['logp_mean_diff']:.1e}){row['grad_rel_diff']:10.1e}"
        f"{_or_none(row['stock_tflops'], '.1f'):>10}{row['first_seconds']:12.1f}  {row['self_check']}"
    )


if __name__ == "__main__":
    main()
