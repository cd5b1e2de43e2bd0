"""The rows of the datasets and the rewards that read them, as far as they can be checked before a run."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from swift_grpo_ext.doctor.check.facts import rewards, rows
from swift_grpo_ext.doctor.check.facts.arguments import sure
from swift_grpo_ext.doctor.check.facts.rows import SeenRow
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, fault, grpo_anywhere, option, table
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import ERROR, NOTE, WARNING, NotKnownError, Problem, Severity
from swift_grpo_ext.models.text import why_no_completion
from swift_grpo_ext.rewards import catalogue, forms

rule = partial(table.rule, scope=grpo_anywhere)
Values = tuple[Any, ...]


def row_fault(
    id: str,
    severity: Severity,
    found: Callable[[Run, SeenRow], Values],
    what: str,
    fix: str,
    *,
    replaced: bool = False,
    **more: Any,
) -> None:
    """Like `fault`, for single rows: reports the first such row, with the number of such rows.

    A fault for which the trainer replaces the row (``replaced``) is only a warning if it does so and some row
    is sound.
    """

    def look(run: Run) -> Iterator[Problem]:
        samples = rows.samples_of(rows.datasets(run))
        faults = [(sample.where, values) for sample in samples if (values := found(run, sample))]
        for where, values in faults[:1]:
            share = f" ({len(faults)} of {len(samples)} rows"
            is_left_out = replaced and len(faults) < len(samples) and _replaces_rows(run)
            share += ", which the trainer replaces)" if is_left_out else ")"
            severity = WARNING if is_left_out else None
            yield Problem(what.format(*values) + share, where, fix.format(*values), severity=severity)

    rule(id, severity, **more)(look)


def _replaces_rows(run: Run) -> bool:
    try:
        return "trainer" in run.parts and run.environ.get("SWIFT_GRPO_EXT_BAD_ROW") != "raise"
    except NotKnownError:  # "$@" may hold the plugin
        return True


@rule(
    "dataset-empty",
    ERROR,
    symptoms="training ends at step 0, or ms-swift raises an AssertionError of the dataset's length",
    cause="A file, folder or draw without rows.",
)
def _empty(run: Run) -> Iterator[Problem]:
    for dataset in rows.datasets(run):
        if dataset.empty:
            yield Problem(
                dataset.empty, dataset.where, "check the path, the number behind #, and the columns"
            )


@rule(
    "dataset-elsewhere",
    NOTE,
    symptoms="check says nothing about the rows of a dataset",
    cause="Rows of a dataset on a hub are not downloaded to look at them.",
    not_checked="rows",
)
def _elsewhere(run: Run) -> Iterator[Problem]:
    for dataset in rows.datasets(run):
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
    for dataset in rows.datasets(run):
        if dataset.unreadable:
            yield Problem(dataset.unreadable.what, dataset.unreadable.where, "fix the line")


def _broken_media(_run: Run, sample: SeenRow) -> Values:
    faults = ((medium.fault, medium.fix) for medium in chain(*sample.media.values()) if medium.fault)
    return next(faults, ())


def _last_role(_run: Run, sample: SeenRow) -> Values:
    why = why_no_completion(sample.prompt)
    return (why,) if why else ()


def _turned(run: Run, sample: SeenRow) -> Values:
    turned = sum(image.turned for image in sample.media.get("images", ()))
    is_on = run.environ.get("SWIFT_GRPO_EXT_TURN_IMAGES") not in (None, "0")
    named = [catalogue.get_reward(name) for name in rewards.names(run) if name in catalogue.NAMES]
    has_boxes = "objects" in sample.columns or any("frame" in reward.parameters for reward in named)
    return (turned,) if turned and has_boxes and not is_on else ()


def _too_many_images(run: Run, sample: SeenRow) -> Values:
    images = len(sample.media.get("images", ()))
    try:
        most = json.loads(run.arguments.vllm_limit_mm_per_prompt or "{}").get("image", images)
    except (ValueError, AttributeError):  # ms-swift reports it at once
        return ()
    return (images, most) if run.arguments.use_vllm and images > most else ()


def _too_long(run: Run, sample: SeenRow) -> Values:
    limit = run.arguments.max_length or sample.tokens
    return (sample.tokens, limit, rounded_up(sample.tokens)) if sample.tokens > limit else ()


def _over_model_len(run: Run, sample: SeenRow) -> Values:
    args = run.arguments
    length = args.vllm_max_model_len if args.use_vllm else None
    needed = sample.tokens + args.max_completion_length
    values = (sample.tokens, args.max_completion_length, length, rounded_up(needed))
    return values if length and sample.tokens and needed > length else ()


row_fault(
    "row-tags",
    ERROR,
    lambda _run, sample: sample.mistags if sample.has_media else (),
    "{}",
    "one tag for each, in order",
    replaced=True,
    symptoms="ValueError: num_images: ..., num_images_tags: ...",
    cause="Each tag in the text stands for one image, video or sound of the row.",
)
row_fault(
    "row-tags-alone",
    WARNING,
    lambda _run, sample: () if sample.has_media else sample.mistags,
    "{}: the model reads them as text",
    "the column images (videos, audios), if the row has any",
    symptoms="<image> stands in the question as text, and the model sees no image",
    cause="A row without the column of its images is one of text.",
)
row_fault(
    "row-role",
    ERROR,
    _last_role,
    "{}",
    "messages need a question: end them with user or tool_response, or with the answer to it",
    replaced=True,
    symptoms="'str' object cannot be interpreted as an integer, in the first rollout",
    cause="No answer follows a tool call, or another role than user and tool_response.",
)
row_fault(
    "row-turned",
    WARNING,
    _turned,
    "{} pictures have an EXIF orientation, which nobody applies",
    "SWIFT_GRPO_EXT_TURN_IMAGES=1",
    symptoms="boxes are off in photographs",
    cause="Boxes that were drawn on the upright picture miss in the pixels as they are stored.",
)
row_fault(
    "row-image",
    ERROR,
    _broken_media,
    "{}",
    "{1}",
    replaced=True,
    symptoms="FileNotFoundError for an image that lies beside the dataset",
    cause="ms-swift looks in the working folder and in ROOT_IMAGE_DIR, not beside the dataset.",
)
row_fault(
    "row-images",
    ERROR,
    _too_many_images,
    "{} images, --vllm_limit_mm_per_prompt takes {}",
    """--vllm_limit_mm_per_prompt '{{"image": {}}}'""",
    symptoms="ValueError: At most ... image(s) may be provided in one prompt.",
    cause="vLLM takes as many images of a prompt as --vllm_limit_mm_per_prompt says.",
)
row_fault(
    "row-too-long",
    WARNING,
    _too_long,
    "{} prompt tokens, max_length is {}",
    "--max_length {2}",
    symptoms="MaxLengthError, or the question is cut off at its left",
    cause="A prompt with its images is longer than --max_length.",
)
row_fault(
    "row-over-model-len",
    ERROR,
    _over_model_len,
    "{} + {} tokens, vllm_max_model_len is {}",
    "--vllm_max_model_len {3}",
    symptoms="The decoder prompt (length ...) is longer than the maximum model length",
    cause="vllm_max_model_len holds prompt, image tokens and completion together.",
    reports="https://github.com/modelscope/ms-swift/issues/3592",
)


def _without_reward(run: Run) -> bool:
    args = run.arguments
    gyms = ("use_gym_env", "gym_env")
    if any(map(args.get, ("reward_funcs", "reward_model", *gyms, "teacher_model", "teacher_model_server"))):
        return False
    of_server = args.use_vllm and args.vllm_mode == "server" and decided(args.use_gym_env) is None
    if of_server and not run.servers:
        raise NotKnownError("rewards, which a gym on the rollout server may give")
    return not (of_server and any(server.get(name) for server in run.servers for name in gyms))


fault(
    "no-reward",
    ERROR,
    _without_reward,
    "no reward function is given",
    "--reward_funcs",
    "--reward_funcs ext_choice ext_format",
    symptoms="ValueError: You must specify reward_funcs or reward_model",
    cause="Nothing scores the completions.",
    reports="B3",
    scope=grpo_anywhere,
)


def _uneven_weights(run: Run) -> tuple[int, int] | None:
    args = run.arguments
    gym = decided(args.use_gym_env)
    sources = len(args.reward_funcs or []) + len(args.reward_model or [])
    sources += bool(args.gym_env if gym is None else gym)
    weights = decided(args.reward_weights)
    return None if weights is None or len(weights) == sources else (len(weights), sources)


fault(
    "reward-weights",
    ERROR,
    _uneven_weights,
    "{} weights for {} rewards",
    "--reward_weights",
    "--reward_weights with {1} numbers",
    symptoms="Number of reward weights (...) must match number of reward functions (...)",
    cause="Found by ms-swift after the model is loaded.",
    scope=grpo_anywhere,
)


@rule(
    "unknown-reward",
    ERROR,
    symptoms="ValueError: reward_function ... is not implemented in swift.rewards",
    cause="Found by ms-swift only after the model is loaded. Names starting with ext_ need our plugin.",
)
def _unknown_reward(run: Run) -> Iterator[Problem]:
    registered = {*host_table.names("reward_funcs"), *catalogue.NAMES}
    of_the_user = []
    for text in run.arguments.reward_funcs or []:
        try:
            name = catalogue.split_form(text)[0]
        except SwiftGrpoExtError as error:
            yield Problem(error.what, error.where or "--reward_funcs", error.fix)
            continue
        several = name.replace(",", " ").split()
        if several != [name]:
            yield option("reward_funcs", f"{name} is taken for one name", " ".join(several))
        elif name in catalogue.NAMES and "rewards" not in run.parts:
            yield Problem(f"{name} needs our plugin", "--reward_funcs", OUR_PLUGIN)
        elif name not in registered and (name.startswith("ext_") or not run.has_plugins_of_the_user):
            close = sure(name, registered)
            usual = f"--reward_funcs {close}" if close else "register it in --external_plugins"
            fix = catalogue.GONE.get(name, usual)
            yield Problem(f"no reward is called {name}", "--reward_funcs", fix)
        elif name not in registered:
            of_the_user.append(name)
    if of_the_user:  # plugins are not imported
        raise NotKnownError(f"{' '.join(of_the_user)} of your plugin, which `score` calls")


@rule(
    "reward-column",
    ERROR,
    symptoms="TypeError: __call__() missing 1 required positional argument: 'solution'",
    cause="The column is not in the data, or not in that for evaluation, or ms-swift renamed it: answer "
    "becomes response.",
    reports=(
        "https://github.com/modelscope/ms-swift/issues/3840",
        "https://github.com/modelscope/ms-swift/issues/7316",
    ),
)
def _column(run: Run) -> Iterator[Problem]:
    for dataset in rows.datasets(run):
        for name in rewards.names(run) if dataset.samples and (dataset.trains or run.evaluates) else ():
            column = rewards.missing(run, name, dataset.samples)
            if column:
                golds = {column for sample in dataset.samples for column in sample.columns} - rewards.NOT_GOLD
                renamed = json.dumps({min(golds, default="ANSWER"): column.split()[0]})
                yield Problem(
                    f"{name} needs the column {column}, which the rows lack: they have "
                    f"{', '.join(sorted(golds)) or 'no gold'}",
                    dataset.where,
                    f"--columns '{renamed}', or add the column",
                )


@rule(
    "reward-form-not-asked",
    WARNING,
    symptoms="reward is 0 for completions that look right",
    cause="A reward reads the answer in a form, and neither the prompts nor --system ask the model for it.",
)
def _form(run: Run) -> Iterator[Problem]:
    samples = rows.training(run)
    system = run.arguments.system or ""
    texts = [str(turn.get("content", "")) for sample in samples for turn in sample.prompt]
    for name in rewards.names(run) if samples and not system.endswith(".txt") else ():
        if form := forms.form_not_asked(name, [*texts, system]):
            what = f"{name} reads {form}, and neither the prompts nor --system ask for it"
            yield Problem(what, "--system", f"--system '{forms.system_text(name)}'")
