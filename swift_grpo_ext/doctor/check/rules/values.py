"""Values out of their range, names of no release, broken JSON."""

import json
import re
from collections.abc import Collection, Iterator

from swift_grpo_ext import losses
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import anywhere, fault, grpo_anywhere, option, rule, variable
from swift_grpo_ext.doctor.plan.setting import USUAL_PIXELS
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import ERROR, NOTE, WARNING, Problem
from swift_grpo_ext.models.families import FAMILIES
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.settings import PREFIX

_OURS = {
    "template": [family.host_template for family in FAMILIES.values()],
    "model_type": [family.host_model_type for family in FAMILIES.values()],
    "callbacks": ["ext_watch"],
}
# Tables that no plugin of ms-swift adds to.
_FIXED = frozenset({"lr_scheduler_type", "eval_strategy", "report_to"})
# What grpo_trainer computes; any other name is found at the first loss, after model load and rollout.
LOSSES = tuple(loss.name for loss in losses.LOSSES.values() if not loss.liger_only)


_ANY = float("inf")
_COUNTS = """
    num_generations num_iterations per_device_train_batch_size per_device_eval_batch_size
    gradient_accumulation_steps max_completion_length max_length steps_per_generation generation_batch_size
    vllm_tensor_parallel_size vllm_data_parallel_size vllm_max_model_len move_model_batches lora_rank
    """
# Least and most of an argument's value.
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_COUNTS.split(), (1, _ANY)),
    **dict.fromkeys(("temperature", "beta", "epsilon", "epsilon_high"), (0, _ANY)),
    **dict.fromkeys(("top_p", "min_p", "warmup_ratio", "split_dataset_ratio"), (0, 1)),
    "vllm_gpu_memory_utilization": (0.01, 1),
    "lora_dropout": (0, 0.99),
    "num_train_epochs": (1e-06, _ANY),
    "top_k": (-1, _ANY),
}
# Arguments whose value ms-swift looks up in a table of its own.
_LOOKED_UP = (
    "lr_scheduler_type",
    "callbacks",
    "multi_turn_scheduler",
    "template",
    "model_type",
    "optimizer",
    "reward_model_plugin",
    "eval_strategy",
    "report_to",
    "attn_impl",
    "tuner_type",
)
_JSON = (
    "columns",
    "model_kwargs",
    "gradient_checkpointing_kwargs",
    "vllm_limit_mm_per_prompt",
    "vllm_engine_kwargs",
    "lr_scheduler_kwargs",
)


@rule(
    "out-of-range",
    ERROR,
    symptoms=(
        "ZeroDivisionError: integer modulo by zero",
        "ValueError: steps_per_generation must be > 0, got 0.",
        "ValueError: gpu_memory_utilization must be in (0, 1]",
    ),
    cause="ms-swift checks few ranges; what it lets through fails later, far from its cause.",
)
def _range(run: Run) -> Iterator[Problem]:
    args = run.arguments
    for name in filter(args.is_known, _RANGES):
        value = args.get(name)
        low, high = _RANGES[name]
        if isinstance(value, (int, float)) and not low <= value <= high:
            wanted = f"at least {low:g}" if high == _ANY else f"between {low:g} and {high:g}"
            yield option(name, f"{name} is {value:g}, not {wanted}", f"{min(max(value, low), high):g}")
    if args.is_known("top_k") and args.top_k == 0 and args.use_vllm:
        yield option("top_k", "top_k is 0, which vLLM does not take", -1)


@rule(
    "pixels-no-number",
    ERROR,
    symptoms="ValueError: invalid literal for int() with base 10: '1280*28*28'",
    cause="ms-swift reads these variables as whole numbers.",
    scope=anywhere,
)
def _pixels(run: Run) -> Iterator[Problem]:
    for name in ("MAX_PIXELS", "MIN_PIXELS", "VIDEO_MAX_PIXELS"):
        value = run.environ.get(name, "").strip()
        if value and not value.isdecimal():
            fix = f"$(({value}))" if re.fullmatch(r"[0-9 *]+", value) else USUAL_PIXELS
            yield variable(name, f"{value} is not a whole number", fix)


@rule(
    "pixels-upside-down",
    ERROR,
    symptoms="AssertionError: The max_pixels of image must be greater than or equal to min_pixels.",
    cause=(
        "An image is resized to between MIN_PIXELS and MAX_PIXELS; without MIN_PIXELS it has at "
        "least 4 tokens."
    ),
    scope=anywhere,
)
def _upside_down(run: Run) -> Iterator[Problem]:
    values = [run.environ.get(name, "").strip() for name in ("MIN_PIXELS", "MAX_PIXELS")]
    low, high = (int(value) if value.isdecimal() else None for value in values)
    vision = run.shape.vision if run.shape else None
    side = vision.patch * vision.merge if vision else 28
    least = 4 * side**2 if low is None else low
    if high is not None and high < least and not (vision and vision.tile):
        yield variable("MAX_PIXELS", f"{high} is less than the least size of an image, {least}", USUAL_PIXELS)


@rule(
    "ranks-no-number",
    ERROR,
    symptoms="ValueError: Unsupported nproc_per_node value: ...",
    cause="torchrun takes a number above 0, or gpu, cpu, auto.",
    scope=anywhere,
)
def _ranks(run: Run) -> Iterator[Problem]:
    for name in ("NPROC_PER_NODE", "NNODES"):
        value = run.environ.get(name, "").strip()
        named = value in ("", "gpu", "cpu", "auto", "xpu") or ":" in value
        if not named and (not value.isdecimal() or int(value) < 1):
            yield variable(name, f"{value} is not a number of processes", 8)


# What is taken for a name that is like no other, and what is meant by one that is none.
_USUAL = {"tuner_type": "lora", "loss_type": "grpo"}
_MEANT = {"qlora": "lora --quant_method bnb --quant_bits 4"}


def _strangers(run: Run, argument: str, names: Collection[str]) -> Iterator[Problem]:
    """Names of an argument that are not known; one with a slash is that of an attention kernel on a hub."""
    value = run.arguments.get(argument)
    for name in value if isinstance(value, list) else [value] if value else []:
        if name not in names and "/" not in str(name):
            close = _MEANT.get(name) or nearest(name, names, NEAR) or _USUAL.get(argument)
            other = "leave it out" if argument in _FIXED else "register it in --external_plugins"
            fix = f"--{argument} {close}" if close else other
            yield Problem(f"ms-swift does not know the {argument} {name}", f"--{argument}", fix)


@rule(
    "unknown-name",
    ERROR,
    symptoms=(
        "ValueError: ... is not a valid SchedulerType, please select one of",
        "AssertionError: assert args.multi_turn_scheduler in multi_turns",
        "KeyError for the name of a template, a model_type, a callback or an optimizer",
        "NotImplementedError, or KeyError, for a tuner_type",
        "ValueError: rm_plugin ... is not implemented in swift.rewards",
        "ValueError: ... is not a valid IntervalStrategy, please select one of",
        "is not supported, only azure_ml, comet_ml, mlflow",
        'ValueError: Specified `attn_implementation="..."` is not supported.',
    ),
    cause="The parser takes any word; ms-swift looks it up in its table only when it needs it.",
)
def _unknown(run: Run) -> Iterator[Problem]:
    for argument in filter(run.arguments.is_known, _LOOKED_UP):
        if argument in _FIXED or not run.has_plugins_of_the_user:  # they may register any name
            yield from _strangers(run, argument, {*host_table.names(argument), *_OURS.get(argument, ())})


@rule(
    "unknown-loss",
    ERROR,
    symptoms="ValueError: Unknown loss type: ...",
    cause="Found by ms-swift at the first loss, after model load and rollout.",
    scope=grpo_anywhere,
)
def _unknown_loss(run: Run) -> Iterator[Problem]:
    yield from _strangers(run, "loss_type", LOSSES)


@rule(
    "extension-setting",
    ERROR,
    symptoms=(
        "SettingsError: unknown setting",
        "UnknownPartError: unknown part",
    ),
    cause="This package reads its settings when the plugin is imported, and takes no unknown name or value.",
    scope=anywhere,
)
def _settings(run: Run) -> Iterator[Problem]:
    try:
        check_disabled(run.settings.disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.fix)


@rule(
    "broken-json",
    ERROR,
    symptoms="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
    cause="Inside a shell's single quotes JSON needs double quotes, and nothing after the last entry.",
    scope=anywhere,
)
def _broken_json(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.is_known, _JSON):
        value = run.arguments.get(name)
        if isinstance(value, str) and not value.endswith(".json"):
            try:
                json.loads(value)
            except ValueError as error:
                yield option(name, f"not JSON: {error}: {value:.60}", "with double quotes inside")


@rule(
    "given-twice",
    WARNING,
    symptoms="an argument has no effect",
    cause="Of an argument that is given twice the last one counts.",
    scope=anywhere,
)
def _twice(run: Run) -> Iterator[Problem]:
    for name, seen in run.arguments.repeated:
        what = f"given as {' and as '.join(map(repr, seen))}: the last counts"
        yield option(name, what, f"{seen[-1]}, once")


fault(
    "not-grpo",
    ERROR,
    lambda run: run.arguments.rlhf_type != "grpo" and "rlhf_type" not in run.arguments.given,
    "ms-swift would train DPO",
    "--rlhf_type",
    "--rlhf_type grpo",
    symptoms="KeyError: 'rejected_response', or a DPO trainer starts",
    cause="Without --rlhf_type ms-swift trains DPO.",
    scope=anywhere,
)
fault(
    "other-training",
    NOTE,
    lambda run: not run.grpo and run.arguments.rlhf_type,
    "the rest: this is {}, and the rules are those of GRPO",
    "--rlhf_type",
    "",
    symptoms="check finds nothing in a DPO, KTO or SFT command",
    cause="Its rules are those of GRPO.",
    scope=anywhere,
    not_checked="the rest, for the rules are those of GRPO",
)
