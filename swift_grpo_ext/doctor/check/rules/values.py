"""Values out of their range, names that exist in no release, JSON that is none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import yaml

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, nearest
from swift_grpo_ext.findings import Problem

# What grpo_trainer computes; any other name is found at the first loss, after model load and rollout.
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "real", "fipo")


@table.on("out-of-range")
def _range(run: Run) -> Iterator[Problem]:
    args = run.arguments
    for name in filter(args.known, table.texts["out-of-range"]["at_least_one"]):
        value = args.get(name)
        if isinstance(value, int) and value < 1:
            yield Problem(f"{name} is {value}, at least 1", f"--{name}", f"--{name} 1")
    for name, (low, high) in table.texts["out-of-range"]["between"].items():
        value = args.get(name) if args.known(name) else None
        if isinstance(value, (int, float)) and not low <= value <= high:
            wanted = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
            yield Problem(
                f"{name} is {value:g}, not {wanted}", f"--{name}", f"--{name} {min(max(value, low), high):g}"
            )
    top_k = args.top_k
    if isinstance(top_k, int) and ((top_k == 0 and args.use_vllm) or top_k < -1):
        yield Problem(f"top_k is {top_k}", "--top_k", "--top_k -1")


@table.on("pixels-no-number")
def _pixels(run: Run) -> Iterator[Problem]:
    for name in ("MAX_PIXELS", "MIN_PIXELS", "VIDEO_MAX_PIXELS"):
        value = run.environ.get(name, "").strip()
        if value and not value.isdecimal():
            yield Problem(
                f"{value} is no whole number",
                name,
                f"export {name}=$(({value}))"
                if re.fullmatch(r"[0-9 *]+", value)
                else f"export {name}=1003520",
            )


@table.on("pixels-upside-down")
def _upside_down(run: Run) -> Iterator[Problem]:
    values = [run.environ.get(name, "").strip() for name in ("MIN_PIXELS", "MAX_PIXELS")]
    low, high = (int(value) if value.isdecimal() else None for value in values)
    side = run.shape.vision.patch * run.shape.vision.merge if run.shape and run.shape.vision else 28
    least = 4 * side**2 if low is None else low
    if high is not None and high < least and not (run.shape and run.shape.vision and run.shape.vision.tile):
        yield Problem(
            f"{high} is less than the least size of an image, {least}",
            "MAX_PIXELS",
            "export MAX_PIXELS=1003520",
        )


@table.on("ranks-no-number")
def _ranks(run: Run) -> Iterator[Problem]:
    for name in ("NPROC_PER_NODE", "NNODES"):
        value = run.environ.get(name, "").strip()
        if (
            value not in ("", "gpu", "cpu", "auto", "xpu")
            and ":" not in value
            and (not value.isdecimal() or int(value) < 1)
        ):
            yield Problem(f"{value} is no number of processes", name, f"export {name}=8")


@table.on("unknown-loss")
def _loss(run: Run) -> Iterator[Problem]:
    given = run.arguments.loss_type
    for name in given if isinstance(given, list) else [given] if given else []:
        if name not in LOSSES:
            close = nearest(name, LOSSES, NEAR)
            fix = f"--loss_type {close or 'grpo'}"
            what = f"GRPO has no loss called {name}, only {', '.join(LOSSES)}"
            yield Problem(what, "--loss_type", fix)


@table.on("unknown-tuner")
def _tuner(run: Run) -> Iterator[Problem]:
    known = host_table.names("tuner_type")
    name = str(run.arguments.tuner_type)
    if name not in known and not run.arguments.external_plugins:
        fix = (
            "--tuner_type lora --quant_method bnb --quant_bits 4" if name == "qlora" else "--tuner_type lora"
        )
        close = nearest(name, known, NEAR) if name != "qlora" else ""
        yield Problem(f"no tuner is called {name}", "--tuner_type", f"--tuner_type {close}" if close else fix)


@table.on("broken-json")
def _json(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.known, table.texts["broken-json"]["arguments"]):
        value = run.arguments.get(name)
        if isinstance(value, str) and not value.endswith(".json"):
            try:
                json.loads(value)
            except ValueError as error:
                yield Problem(f"no JSON: {error}: {value:.60}", f"--{name}", f"--{name} '{_repaired(value)}'")


def _repaired(value: str) -> str:
    """What was meant, where YAML reads it; else the form of it."""
    with suppress(yaml.YAMLError):
        table = yaml.safe_load(value)
        if isinstance(table, dict) and None not in table.values():
            return json.dumps(table)
    return '{"key": 1}'


@table.on("given-twice")
def _twice(run: Run) -> Iterator[Problem]:
    for name, seen in run.arguments.repeated:
        yield Problem(
            f"given as {' and as '.join(map(repr, seen))}: the last counts",
            f"--{name}",
            f"--{name} {seen[-1]}, once",
        )
