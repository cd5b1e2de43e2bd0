"""Written plans and ms-swift's examples: check, the shell, and ms-swift's own argument class in its own process."""

import itertools
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from swift_grpo_ext.doctor.check import command
from swift_grpo_ext.doctor.plan import script
from swift_grpo_ext.doctor.plan.catalogue import (
    bundled_name,
    loadable,
    published,
    require_config,
    shape_by_config,
)
from swift_grpo_ext.doctor.plan.search import plans
from swift_grpo_ext.doctor.plan.setting import Machine, Work
from swift_grpo_ext.findings import Severity
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.plugin_files import plugin_file

pytestmark = pytest.mark.usefixtures("launch_folder")

MACHINES = {
    "24 GB": Machine(gpus_per_node=1, gpu_memory=24),
    "80 GB": Machine(gpus_per_node=1),
    "4 x 48 GB": Machine(gpus_per_node=4, gpu_memory=48),
    "node": Machine(),
    "2 nodes": Machine(nodes=2),
    "16 nodes": Machine(nodes=16),
}
WORKS = {"lora": Work(), "full": Work(full=True), "4 bit": Work(bits=4)}
EVERY = list(itertools.product(published(), WORKS, MACHINES, ("colocate", "server", "transformers")))
SAMPLE = [
    ("Qwen2.5-VL-3B", "4 bit", "24 GB", "transformers"),
    ("Qwen2.5-VL-7B", "lora", "80 GB", "colocate"),
    ("Qwen2.5-VL-72B", "lora", "node", "server"),
    ("Qwen3-VL-30B-A3B", "full", "16 nodes", "colocate"),
    ("InternVL3-8B", "lora", "4 x 48 GB", "server"),
    ("gemma-3-4b", "full", "node", "colocate"),
    ("Ovis2-8B", "full", "2 nodes", "transformers"),
    ("Qwen3.5-9B", "full", "24 GB", "transformers"),  # a pack of a family that is not described
]
GIVEN = {"DATASET": "rows.jsonl", "VAL_DATASET": "rows.jsonl", "REWARDS": "accuracy format"}
CODE_OF_THE_CHECKPOINT = ("kimi_vl", "minicpmv")  # ms-swift reads their config.json by running it


def written(cases):
    """(case, folder) of every plan that fits and may be written."""
    rows = '{"query": "What is 1 + 2?", "solution": "3"}\n' * 4096
    Path("rows.jsonl").write_text(rows)
    for number, (model, work, machine, rollout) in enumerate(cases):
        config = require_config(model)
        family = family_of(str(config["model_type"]))
        of_vllm = rollout != "transformers"
        if of_vllm and (WORKS[work].bits < 16 or (family and "vllm" in family.lacks)):
            continue  # `plan` says so itself, and plans without vLLM
        shape = shape_by_config(config)
        found = plans(shape, replace(WORKS[work], rollouts=(rollout,)), MACHINES[machine])
        if found and found[0].fits:
            folder = Path(f"plan-{number}")
            script.write(folder, loadable(model), shape, WORKS[work], found[0], MACHINES[machine])
            yield (model, work, machine, rollout), folder


def as_the_shell_starts_it(folder, name="train.sh"):
    """Words and variables of the command that a script starts: the real shell, with a `swift` that tells them."""
    bin_folder = Path("bin").resolve()
    if not bin_folder.exists():
        bin_folder.mkdir()
        tell = "import json, os, sys; print(json.dumps([sys.argv[2:], dict(os.environ)]))"
        (bin_folder / "swift").write_text(f"#!{sys.executable} -S\n{tell}\n")
        (bin_folder / "swift-grpo-ext").write_text(f"#!/bin/sh\necho {plugin_file('all')}\n")
        for file in bin_folder.iterdir():
            file.chmod(0o755)
    rows = str(Path("rows.jsonl").resolve())
    given = {"DATASET": rows, "VAL_DATASET": rows, "REWARDS": "accuracy format"}
    given |= {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", folder / name], env=given, capture_output=True, text=True, timeout=60)
    words, environ = json.loads(done.stdout)
    return words, {key: value for key, value in environ.items() if key not in ("PATH", "PWD", "SHLVL", "_")}


def with_the_model_here(words, model):
    """A folder of the checkpoint's name, with its config.json, in place of an id of the hub."""
    at = words.index("--model") + 1
    folder = Path("models", words[at].rsplit("/", 1)[-1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(require_config(model)))
    return [*words[:at], str(folder), *words[at + 1 :]]


def refusals(commands):
    """What ms-swift's own argument class raises, of each; empty for nothing."""
    lines = "".join(json.dumps({"words": words, "environ": environ}) + "\n" for words, environ in commands)
    child = Path(__file__).with_name("ms_swift_arguments.py")
    done = subprocess.run(
        [sys.executable, child], input=lines, capture_output=True, text=True, timeout=60 + 20 * len(commands)
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(commands), done.stderr[-2000:]
    return said


def faults_of(cases):
    """By case, what check or ms-swift finds in its plan; and how many there were."""
    faults, commands, of = {}, [], []
    for case, folder in written(cases):
        machine = MACHINES[case[2]]
        for name, value in GIVEN.items():
            os.environ[name] = value
        found = command.verdict_of([str(folder / "train.sh")], row_limit=0, gpu_memory=machine.gpu_memory)
        loud = [one.what for one in found.findings if one.severity is not Severity.NOTE]
        if loud or found.code:
            faults[case] = loud or [found.closing]
        if require_config(case[0])["model_type"] not in CODE_OF_THE_CHECKPOINT:
            words, environ = as_the_shell_starts_it(folder)
            commands.append((with_the_model_here(words, case[0]), environ))
            of.append(case)
    for case, refusal in zip(of, refusals(commands), strict=True):
        if refusal:
            faults.setdefault(case, []).append(refusal)
    return faults, len(of)


def test_a_sample_of_written_plans_passes_check_and_ms_swift(monkeypatch):
    for name in GIVEN:
        monkeypatch.setenv(name, "")
    faults, count = faults_of(SAMPLE)
    assert faults == {}
    assert count == len(SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_written_plan_passes_check_and_ms_swift(monkeypatch):
    for name in GIVEN:
        monkeypatch.setenv(name, "")
    faults, count = faults_of(EVERY)
    assert faults == {}
    assert count > len(EVERY) / 3


HOST_ROWS = Path(__file__).parents[2] / "benchmarks" / "ms_swift_commands.jsonl"


@pytest.mark.slow
def test_no_error_in_the_examples_of_ms_swift_that_its_own_class_does_not_raise():
    """Each as a command; a model whose sizes are not bundled is taken for Qwen2.5-VL-3B.

    The scheduler of a plugin that the row lacks is looked up later, when the trainer is made.
    """
    from swift.rollout import multi_turns

    rows = [json.loads(line) for line in HOST_ROWS.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if not row["engine"].startswith("megatron") and "..." not in str(row)]
    Path("rows.jsonl").write_text('{"query": "What is 1 + 2?", "solution": "3"}\n' * 4096)
    errors, commands = [], []
    for row in rows:
        model = bundled_name(row["args"]["model"]) or "Qwen2.5-VL-3B"
        given = {
            "rlhf_type": "grpo",
            "dataset": "rows.jsonl",
            "reward_funcs": "accuracy",
            "tuner_type": "lora",
        }
        given |= row["args"] | {"model": loadable(model)}
        if given.get("vllm_mode") == "server":
            given["vllm_server_host"] = "10.0.0.9"
        words = [
            word
            for name, value in given.items()
            for word in (f"--{name}", *shlex.split(str(value), posix=True))
        ]
        environ = {"NPROC_PER_NODE": "1", **row.get("env", {})}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environ.items())
        Path("train.sh").write_text(f"{exports}swift rlhf {shlex.join(words)}\n")
        found = command.verdict_of(["train.sh"], row_limit=0)
        errors.append([one.what for one in found.findings if one.severity is Severity.ERROR])
        commands.append((with_the_model_here(words, model), environ))
    assert len(commands) >= 15
    said = refusals(commands)
    asked = [row["args"].get("multi_turn_scheduler", "gym_scheduler") for row in rows]
    said = [theirs or name * (name not in multi_turns) for theirs, name in zip(said, asked, strict=True)]
    wrong = [(row["script"], mine, theirs) for row, mine, theirs in zip(rows, errors, said, strict=True)]
    print(*[one for one in wrong if one[1] or one[2]], sep="\n")
    assert [one for one in wrong if one[1] and not one[2]] == []
