"""Sends dataset rows through the real template: tokens against the limits, placeholders against features."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.doctor.check.environment import environment
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Finding, Severity

if TYPE_CHECKING:
    from swift.template import Template

_PIXEL_VARIABLES = """
    MAX_PIXELS MIN_PIXELS IMAGE_MAX_TOKEN_NUM IMAGE_MIN_TOKEN_NUM VIDEO_MAX_PIXELS FPS FPS_MAX_FRAMES
    ROOT_IMAGE_DIR USE_HF
    """

# What loaders, templates, and we, raise for rows that they cannot read.
_OF_OTHERS = (ValueError, TypeError, LookupError, AssertionError, AttributeError, OSError, RuntimeError)
REFUSALS = (*_OF_OTHERS, SwiftGrpoExtError)


def findings(run: Run, rows: list[tuple[str, dict[str, object]]]) -> Iterator[Finding]:
    """What the template says to some rows; one note if the model's files are not here."""
    folder = run.find(str(run.arguments.model or "-"))
    if not rows:
        return
    if folder is None or not (folder / "tokenizer_config.json").is_file():
        what, fix = "no tokenizer here: rows were not sent through the template", "check where the model is"
        yield Finding("rows-not-encoded", Severity.NOTE, what, f"--model {run.arguments.model}", fix)
        return
    own = {name: run.environ[name] for name in _PIXEL_VARIABLES.split() if name in run.environ}
    with environment({**os.environ, **own}):
        try:
            template = _template(run, folder)
        except REFUSALS as error:
            what = f"ms-swift finds no template: {type(error).__name__}: {error}".splitlines()[0][:400]
            fix = "--model_type and --template"
            yield Finding("no-template", Severity.ERROR, what, f"--model {folder}", fix)
            return
        for where, row in rows:
            yield from _row(run, template, where, row)


def _row(run: Run, template: Template, where: str, row: dict[str, object]) -> Iterator[Finding]:
    try:
        encoded = template.encode(dict(row))
    except REFUSALS as error:
        what = f"the template refuses it: {type(error).__name__}: {error}"
        yield Finding("row-refused", Severity.ERROR, what[:400], where, "fix or drop the row")
        return
    tokens = len(encoded["input_ids"])
    limit = run.arguments.max_length
    if limit and tokens > limit:
        what = f"{tokens} prompt tokens, max_length is {limit}"
        yield Finding("row-too-long", Severity.WARNING, what, where, f"--max_length {_rounded(tokens)}")
    length = run.arguments.vllm_max_model_len if run.arguments.use_vllm else None
    needed = tokens + run.arguments.max_completion_length
    if length and needed > length:
        what = f"{tokens} + {run.arguments.max_completion_length} tokens, vllm_max_model_len is {length}"
        fix = f"--vllm_max_model_len {_rounded(needed)}"
        yield Finding("row-over-model-len", Severity.ERROR, what, where, fix)
    yield from _placeholders(template, encoded, where)


def _rounded(tokens: int) -> int:
    return -(-tokens // 256) * 256


def _placeholders(template: Template, encoded: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """As many placeholder tokens as the vision tower will give features (C5 of docs/findings.md)."""
    grid, token = encoded.get("image_grid_thw"), getattr(template, "image_token_id", None)
    if grid is None or token is None:
        return
    merge = template.processor.image_processor.merge_size
    features = int(grid.prod(-1).sum()) // merge**2
    placeholders = list(encoded["input_ids"]).count(token)
    if features != placeholders:
        what = f"{placeholders} image tokens for {features} image features"
        yield Finding("row-placeholders", Severity.ERROR, what, where, "check the template", reports=("C5",))


def _template(run: Run, folder: Path) -> Any:
    from swift.arguments import BaseArguments
    from swift.pipelines import prepare_model_template

    if "templates" in run.parts:
        from swift_grpo_ext.models import register

        register()
    args = run.arguments
    wanted = {"model_type": args.model_type, "template": args.template, "max_pixels": args.max_pixels}
    given = {name: value for name, value in wanted.items() if value is not None}
    arguments = BaseArguments(model=str(folder), load_args=False, use_hf=True, **given)
    _, template = prepare_model_template(arguments, load_model=False)
    template.max_length = None
    return template
