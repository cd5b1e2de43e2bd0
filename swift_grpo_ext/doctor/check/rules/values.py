"""Values out of their range, names of no release, broken JSON; and what runs and learns nothing."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress

import yaml

from swift_grpo_ext import losses
from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, option, table, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import NotKnownError, Problem
from swift_grpo_ext.models.families import FAMILIES
from swift_grpo_ext.parts import check_disabled
from swift_grpo_ext.rewards import catalogue
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


@table.on("out-of-range")
def _range(run: Run) -> Iterator[Problem]:
    args = run.arguments
    for name in filter(args.known, table.texts["out-of-range"]["at_least_one"]):
        value = args.get(name)
        if isinstance(value, int) and value < 1:
            yield option(name, f"{name} is {value}, at least 1", 1)
    for name, (low, high) in table.texts["out-of-range"]["between"].items():
        value = args.get(name) if args.known(name) else None
        if isinstance(value, (int, float)) and not low <= value <= high:
            wanted = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
            yield option(name, f"{name} is {value:g}, not {wanted}", f"{min(max(value, low), high):g}")
    top_k = args.top_k
    if isinstance(top_k, int) and ((top_k == 0 and args.use_vllm) or top_k < -1):
        yield option("top_k", f"top_k is {top_k}", -1)


@table.on("pixels-no-number")
def _pixels(run: Run) -> Iterator[Problem]:
    for name in ("MAX_PIXELS", "MIN_PIXELS", "VIDEO_MAX_PIXELS"):
        value = run.environ.get(name, "").strip()
        if value and not value.isdecimal():
            fix = f"$(({value}))" if re.fullmatch(r"[0-9 *]+", value) else 1003520
            yield variable(name, f"{value} is not a whole number", fix)


@table.on("pixels-upside-down")
def _upside_down(run: Run) -> Iterator[Problem]:
    values = [run.environ.get(name, "").strip() for name in ("MIN_PIXELS", "MAX_PIXELS")]
    low, high = (int(value) if value.isdecimal() else None for value in values)
    vision = run.shape.vision if run.shape else None
    side = vision.patch * vision.merge if vision else 28
    least = 4 * side**2 if low is None else low
    if high is not None and high < least and not (vision and vision.tile):
        yield variable("MAX_PIXELS", f"{high} is less than the least size of an image, {least}", 1003520)


@table.on("ranks-no-number")
def _ranks(run: Run) -> Iterator[Problem]:
    for name in ("NPROC_PER_NODE", "NNODES"):
        value = run.environ.get(name, "").strip()
        named = value in ("", "gpu", "cpu", "auto", "xpu") or ":" in value
        if not named and (not value.isdecimal() or int(value) < 1):
            yield variable(name, f"{value} is not a number of processes", 8)


# What is taken for a name that is like no other, and what is meant by one that is none.
_USUAL = {"tuner_type": "lora", "loss_type": "grpo"}
_MEANT = {"qlora": "lora --quant_method bnb --quant_bits 4"}


def _strangers(run: Run, argument: str, known: Collection[str]) -> Iterator[Problem]:
    """Names of an argument that are not known; one with a slash is that of an attention kernel on a hub."""
    value = run.arguments.get(argument)
    for name in value if isinstance(value, list) else [value] if value else []:
        if name not in known and "/" not in str(name):
            close = _MEANT.get(name) or nearest(name, known, NEAR) or _USUAL.get(argument)
            fix = f"--{argument} {close}" if close else "leave it out"
            yield Problem(f"ms-swift does not know the {argument} {name}", f"--{argument}", fix)


@table.on("unknown-name")
def _unknown(run: Run) -> Iterator[Problem]:
    for argument in filter(run.arguments.known, table.texts["unknown-name"]["arguments"]):
        if argument in _FIXED or not run.has_plugins_of_the_user:  # they may register any name
            yield from _strangers(run, argument, {*host_table.names(argument), *_OURS.get(argument, ())})


table.on("unknown-loss")(lambda run: _strangers(run, "loss_type", LOSSES))


@table.on("extension-setting")
def _settings(run: Run) -> Iterator[Problem]:
    try:
        check_disabled(run.settings.disable)
    except SwiftGrpoExtError as error:
        yield Problem(error.what, error.where or PREFIX + "DISABLE", error.fix)


@table.on("torchvision-of-another-torch")
def _torchvision(run: Run) -> Iterator[Problem]:
    torch, vision = run.versions.get("torch"), run.versions.get("torchvision")
    if not torch or not vision:
        return
    wanted = int(vision.split(".")[1]) - 15
    major, minor = torch.split(".")[:2]
    if major == "2" and vision.startswith("0.") and int(minor) != wanted:
        what = f"torchvision {vision} is built for torch 2.{wanted}, torch is {torch}"
        yield Problem(what, "torchvision", f'pip install "torchvision==0.{int(minor) + 15}.*"')


@table.on("broken-json")
def _json(run: Run) -> Iterator[Problem]:
    for name in filter(run.arguments.known, table.texts["broken-json"]["arguments"]):
        value = run.arguments.get(name)
        if isinstance(value, str) and not value.endswith(".json"):
            try:
                json.loads(value)
            except ValueError as error:
                yield option(name, f"not JSON: {error}: {value:.60}", f"'{_repaired(value)}'")


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
        what = f"given as {' and as '.join(map(repr, seen))}: the last counts"
        yield option(name, what, f"{seen[-1]}, once")


@table.on("warmup-eats-the-run")
def _warmup(run: Run) -> Iterator[Problem]:
    args = run.arguments
    steps, warmup = args.max_steps or -1, args.warmup_steps or 0
    if steps <= 0:
        return
    spent = warmup if warmup >= 1 else -(-steps * max(warmup, args.warmup_ratio or 0) // 1)
    if spent and spent >= steps / 2:
        yield option("warmup_ratio", f"{spent:g} of {steps} steps are warmup, the first at lr 0", 0)


@table.on("no-reward")
def _no_reward(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if any(map(args.get, _REWARDS)):
        return
    if args.use_vllm and args.vllm_mode == "server" and args.use_gym_env is None:
        if not run.servers:
            raise NotKnownError("rewards, which a gym on the rollout server may give")
        if any(server.value(name) for server in run.servers for name in _GYM):
            return
    yield option("reward_funcs", "no reward function is given", "ext_choice ext_format")


_GYM = ("use_gym_env", "gym_env")
_REWARDS = ("reward_funcs", "reward_model", *_GYM, "teacher_model", "teacher_model_server")


@table.on("unknown-reward")
def _unknown_reward(run: Run) -> Iterator[Problem]:
    known = {*host_table.names("reward_funcs"), *catalogue.NAMES}
    for text in run.arguments.reward_funcs or []:
        try:
            name = catalogue.split_form(text)[0]
        except SwiftGrpoExtError as error:
            yield Problem(error.what, error.where or "--reward_funcs", error.fix)
            continue
        if "," in name or " " in name.strip():
            names = " ".join(name.replace(",", " ").split())
            yield option("reward_funcs", f"{name} is taken for one name", names)
        elif name in catalogue.NAMES and "rewards" not in run.parts:
            yield Problem(f"{name} needs our plugin", "--reward_funcs", OUR_PLUGIN)
        elif name not in known and (name.startswith("ext_") or not run.has_plugins_of_the_user):
            close = nearest(name, known, NEAR)
            fix = f"--reward_funcs {close}" if close else "register it in --external_plugins"
            yield Problem(f"no reward is called {name}", "--reward_funcs", fix)
