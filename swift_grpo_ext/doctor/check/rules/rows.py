"""The rows of the data, as the loader and the template take them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from swift_grpo_ext.doctor.check.facts.media import TAGS
from swift_grpo_ext.doctor.check.facts.rows import Sample
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import grpo_anywhere, table
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.findings import ERROR, NOTE, WARNING, NotKnownError, Problem, Severity
from swift_grpo_ext.rewards.gold.times import invented_times

rule = partial(table.rule, scope=grpo_anywhere)
RowLook = Callable[[Run, Sample], Iterator[Problem]]


def of_rows(look: RowLook, *, replaced: bool = False) -> Callable[[Run], Iterator[Problem]]:
    """Decorator: a rule of single rows as one of all, with the first faulty row and the share of such rows.

    A fault for which the trainer replaces a row (``replaced``) is a warning where it does, and leaves any.
    """

    def over_all(run: Run) -> Iterator[Problem]:
        samples = run.data.samples
        faults = [problem for sample in samples for problem in islice(look(run.as_written, sample), 1)]
        if not faults:
            return
        share = f"{len(faults)} of {len(samples)} rows"
        severity = None
        if replaced and len(faults) < len(samples):
            severity, instead = _replaces(run.as_written)
            share += instead
        yield replace(faults[0], what=f"{faults[0].what} ({share})", severity=severity)

    return over_all


of_replaced_rows = partial(of_rows, replaced=True)


def _replaces(run: Run) -> tuple[Severity | None, str]:
    """How bad a row is that cannot be encoded, and why: the trainer may replace it."""
    try:
        described = "templates" in run.parts and run.family is not None
        deletes = run.arguments.truncation_strategy == "delete"
        replaces = "trainer" in run.parts and run.settings.bad_row == "skip" and (described or deletes)
    except NotKnownError:  # "$@" may hold the plugin
        return WARNING, ""
    return (WARNING, ", which the trainer replaces") if replaces else (None, "")


@rule(
    "dataset-empty",
    ERROR,
    symptoms="training ends at step 0, or ms-swift raises an AssertionError of the dataset's length",
    cause="A file, folder or draw without rows.",
)
def _empty(run: Run) -> Iterator[Problem]:
    for dataset in run.data.datasets:
        if dataset.empty:
            yield Problem(dataset.empty, dataset.where, "check the path, and the number behind #")


@rule(
    "dataset-elsewhere",
    NOTE,
    symptoms="check says nothing about the rows of a dataset",
    cause="Rows of a dataset on a hub are not downloaded to look at them.",
    not_checked="rows",
)
def _elsewhere(run: Run) -> Iterator[Problem]:
    for dataset in run.data.datasets:
        if dataset.elsewhere:
            what = "not a file here: its rows were not checked"
            yield Problem(what, dataset.where, "check again with a local copy")


@rule(
    "row-unreadable",
    ERROR,
    symptoms="json.decoder.JSONDecodeError, or pyarrow.lib.ArrowInvalid, when the dataset is loaded",
    cause="A line of a JSON file is not an object.",
)
def _unreadable(run: Run) -> Iterator[Problem]:
    for dataset in run.data.datasets:
        if dataset.unreadable:
            what = f"{len(dataset.unreadable)} of its first rows are not JSON objects"
            yield Problem(what, dataset.unreadable[0], "fix the line")


@rule(
    "row-dropped",
    WARNING,
    symptoms="the dataset has fewer rows than the file",
    cause="ms-swift drops rows that it cannot read, with a traceback for the first ten only.",
)
def _dropped(run: Run) -> Iterator[Problem]:
    for dataset in run.data.datasets:
        if dataset.refusal:
            what = f"ms-swift drops rows of it: {dataset.refusal}"
            severity = None if dataset.samples else ERROR
            fix = "fix the rows, --strict true names them in a run"
            yield Problem(what, dataset.where, fix, severity=severity)


@rule(
    "row-no-prompt",
    ERROR,
    symptoms="ValueError: messages is empty, or an IndexError in the template",
    cause="GRPO asks with the messages up to the last answer; here none are left.",
)
@of_replaced_rows
def _no_prompt(_run: Run, sample: Sample) -> Iterator[Problem]:
    if not sample.prompt:
        yield Problem("the row has no message of a user", sample.where, "add messages or query")


@rule(
    "row-tags",
    ERROR,
    symptoms="ValueError: num_images: ..., num_images_tags: ...",
    cause="Each tag in the text stands for one image, video or sound of the row.",
)
@of_replaced_rows
def _tags(_run: Run, sample: Sample) -> Iterator[Problem]:
    for kind in sample.mistagged:
        what = f"{sample.tags(kind)} {TAGS[kind]} tags for {len(sample.media[kind])} {kind}"
        yield Problem(what, sample.where, "one tag for each, in order")


@rule(
    "row-image",
    ERROR,
    symptoms="FileNotFoundError for an image that lies beside the dataset",
    cause="ms-swift looks in the working folder and in ROOT_IMAGE_DIR, not beside the dataset.",
)
@of_replaced_rows
def _image(_run: Run, sample: Sample) -> Iterator[Problem]:
    for medium in chain(*sample.media.values()):
        if medium.fault:
            yield Problem(medium.fault, sample.where, medium.fix or "fix or drop the row")


@rule(
    "row-times",
    WARNING,
    symptoms=(
        "times of a video given as frames are off by a factor in every answer",
        "ext_temporal_iou scores none of the completions",
    ),
    cause="Of a list of frames ms-swift takes two a second, whatever the clip had.",
)
@of_rows
def _times(run: Run, sample: Sample) -> Iterator[Problem]:
    if what := invented_times(sample.columns, run.environ):
        yield Problem(what, sample.where, "FPS=<frames a second> before the command")


@rule(
    "row-images",
    ERROR,
    symptoms="ValueError: At most ... image(s) may be provided in one prompt.",
    cause="vLLM takes as many images of a prompt as --vllm_limit_mm_per_prompt says.",
)
@of_rows
def _too_many_images(run: Run, sample: Sample) -> Iterator[Problem]:
    images = len(sample.media.get("images", ()))
    try:
        limits = json.loads(str(run.arguments.vllm_limit_mm_per_prompt or "{}"))
    except ValueError:  # of which another rule tells
        return
    most = limits.get("image") if isinstance(limits, dict) else None
    if run.arguments.use_vllm and isinstance(most, int) and images > most:
        what = f"{images} images, --vllm_limit_mm_per_prompt takes {most}"
        fix = f"""--vllm_limit_mm_per_prompt '{{"image": {images}}}'"""
        yield Problem(what, sample.where, fix)


@rule(
    "images-for-text-model",
    WARNING,
    symptoms="images of the data have no effect",
    cause="The model has no vision tower.",
)
@of_rows
def _text_model(run: Run, sample: Sample) -> Iterator[Problem]:
    if sample.media.get("images") and run.shape is not None and run.shape.vision is None:
        what = "the row has images, the model has no vision tower"
        yield Problem(what, sample.where, "a vision-language --model")


@rule(
    "rows-not-encoded",
    NOTE,
    symptoms="check says nothing about the lengths of prompts",
    cause="Tokens are counted with the model's own tokenizer, which is not here.",
    not_checked="lengths of prompts",
)
def _not_encoded(run: Run) -> Iterator[Problem]:
    if not run.data.tokenizer:
        what = "no tokenizer here: rows were not sent through the template"
        yield Problem(what, f"--model {run.as_written.arguments.model}", "check where the model is")


@rule(
    "no-template",
    ERROR,
    symptoms="ms-swift raises while it loads the model's processor or template",
    cause="The model's files do not say by which template it is prompted.",
)
def _no_template(run: Run) -> Iterator[Problem]:
    if run.data.no_template:
        what = f"ms-swift finds no template: {run.data.no_template}"
        yield Problem(what, f"--model {run.as_written.arguments.model}", "--model_type and --template")


@rule(
    "row-refused",
    ERROR,
    symptoms="There are errors in the template.encode, and another piece of data will be randomly selected.",
    cause="The model's template raises for the row; ms-swift prints a traceback and does not name the row.",
)
@of_replaced_rows
def _refused(_run: Run, sample: Sample) -> Iterator[Problem]:
    if sample.encoded and sample.encoded.refusal:
        what = f"the template refuses it: {sample.encoded.refusal}"
        yield Problem(what, sample.where, "fix or drop the row")


@rule(
    "row-too-long",
    WARNING,
    symptoms="MaxLengthError, or the question is cut off at its left",
    cause="A prompt with its images is longer than --max_length.",
)
@of_rows
def _too_long(run: Run, sample: Sample) -> Iterator[Problem]:
    limit = run.arguments.max_length
    tokens = sample.encoded.tokens if sample.encoded else 0
    if limit and tokens > limit:
        what = f"{tokens} prompt tokens, max_length is {limit}"
        yield Problem(what, sample.where, f"--max_length {rounded_up(tokens)}")


@rule(
    "row-over-model-len",
    ERROR,
    symptoms="The decoder prompt (length ...) is longer than the maximum model length",
    cause="vllm_max_model_len holds prompt, image tokens and completion together.",
    reports="https://github.com/modelscope/ms-swift/issues/3592",
)
@of_rows
def _over_model_len(run: Run, sample: Sample) -> Iterator[Problem]:
    args = run.arguments
    length = args.vllm_max_model_len if args.use_vllm else None
    if not length or not sample.encoded or sample.encoded.refusal:
        return
    needed = sample.encoded.tokens + args.max_completion_length
    if needed > length:
        sizes = f"{sample.encoded.tokens} + {args.max_completion_length}"
        what = f"{sizes} tokens, vllm_max_model_len is {length}"
        yield Problem(what, sample.where, f"--vllm_max_model_len {rounded_up(needed)}")
