"""The rows of the datasets and the rewards that read them, as far as they can be checked before a run."""

import json
from collections.abc import Iterator
from functools import partial

from swift_grpo_ext.doctor.check.facts import rewards, rows
from swift_grpo_ext.doctor.check.facts.arguments import sure
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, fault, grpo_anywhere, table
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import ERROR, WARNING, NotKnownError, Problem
from swift_grpo_ext.rewards import catalogue, forms

rule = partial(table.rule, scope=grpo_anywhere)


@rule(
    "dataset-empty",
    ERROR,
    symptoms=(
        "training ends at step 0, or ms-swift raises an AssertionError of the dataset's length",
        "json.decoder.JSONDecodeError, or pyarrow.lib.ArrowInvalid, when the dataset is loaded",
    ),
    cause="A file, folder or draw without rows, or a line of a JSON file that is not an object.",
)
def _empty(run: Run) -> Iterator[Problem]:
    datasets = rows.datasets(run)
    for dataset in datasets:
        if dataset.fault:
            yield dataset.fault
    if not all(dataset.is_here for dataset in datasets):  # nothing is downloaded to look at it
        raise NotKnownError("rows")


@rule(
    "row-tags",
    WARNING,
    symptoms=(
        "ValueError: num_images: ..., num_images_tags: ...",
        "<image> stands in the question as text, and the model sees no image",
    ),
    cause="Each tag in the text stands for one image, video or sound; without their column tags are text.",
)
def _tags(run: Run) -> Iterator[Problem]:
    faults = [(row.mistags, row.where) for row in rows.samples(run) if row.mistags]
    for what, where in faults[:1]:
        fix = "one tag for each, in order, and the column images (videos, audios)"
        yield Problem(f"{what} ({len(faults)} of the first rows)", where, fix)


@rule(
    "row-image",
    ERROR,
    symptoms="FileNotFoundError for an image that lies beside the dataset",
    cause="ms-swift looks in the working folder and in ROOT_IMAGE_DIR, not beside the dataset.",
)
def _no_image(run: Run) -> Iterator[Problem]:
    seen = rows.samples(run)
    faults = [(*fault, row.where) for row in seen if (fault := rows.missing_medium(run, row))]
    for what, fix, where in faults[:1]:
        is_replaced = len(faults) < len(seen) and _replaces_rows(run)
        share = f"{len(faults)} of {len(seen)} rows{', which the trainer replaces' * is_replaced}"
        yield Problem(f"{what} ({share})", where, fix, severity=WARNING if is_replaced else None)


def _replaces_rows(run: Run) -> bool:
    try:
        return "trainer" in run.parts and run.environ.get("SWIFT_GRPO_EXT_BAD_ROW") != "raise"
    except NotKnownError:  # "$@" may hold the plugin
        return True


def _without_reward(run: Run) -> bool:
    args = run.arguments
    sources = ("reward_funcs", "reward_model", "use_gym_env", "gym_env")
    if any(map(args.get, (*sources, "teacher_model", "teacher_model_server"))):
        return False
    if args.use_vllm and args.vllm_mode == "server" and decided(args.use_gym_env) is None:
        raise NotKnownError("rewards, which a gym on the rollout server may give")
    return True


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
        if name in catalogue.NAMES and "rewards" not in run.parts:
            yield Problem(f"{name} needs our plugin", "--reward_funcs", OUR_PLUGIN)
        elif name not in registered and (name.startswith("ext_") or not run.has_plugins_of_the_user):
            close = sure(name, registered)
            own = "names stand apart by blanks; one of your own is registered in --external_plugins"
            usual = f"--reward_funcs {close}" if close else own
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
    samples = [sample for dataset in rows.datasets(run) if dataset.trains for sample in dataset.samples]
    system = run.arguments.system or ""
    texts = [str(turn.get("content", "")) for sample in samples for turn in sample.prompt]
    for name in rewards.names(run) if samples and not system.endswith(".txt") else ():
        if form := forms.form_not_asked(name, [*texts, system]):
            what = f"{name} reads {form}, and neither the prompts nor --system ask for it"
            yield Problem(what, "--system", f"--system '{forms.system_text(name)}'")
