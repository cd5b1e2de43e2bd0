"""Whole runs of `swift rlhf` on the made-up device, with real rollouts: their ways, and what happens where it is full.

Runs of a group share a process, for most of the time of one is imports. All of them: make test-device
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import built_once
from pairs.cases import BASE
from sweep import axes, inputs

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port
from tests.trainer import many_rows
from tests.trainer.runs import REWARD

HERE = Path(__file__).parent
PLUGINS = [HERE / "plugin.py", many_rows.__file__, REWARD, plugin_file()]
GIB = 2**30

SAVED = {"save_strategy": "steps", "save_steps": 1, "add_version": False, "max_steps": 3}
HELD_OUT = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
TURNS = {"max_length": 2048, "reward_funcs": "even_characters"}
WAYS = {
    "autocast": {"bf16": True},
    "16 bits": {"bf16": True, "torch_dtype": "bfloat16"},
    "images of tools": {"multi_turn_scheduler": "crops", "max_turns": 3, **TURNS},
    "rows of turns": {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        **TURNS,
        "reward_funcs": "first_answer",
    },
    "branches": TURNS,
    "cut by free memory": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
    "saved": {**SAVED, "max_steps": 1},
    "resumed": SAVED,
    "adapters": {**SAVED, "tuner_type": "lora"},
    "resampled": {"dynamic_sample": True, "max_resample_times": 1},
    "pinned batches": {"dataloader_num_workers": 1, "dataloader_pin_memory": True},
    "a trained tower": {"freeze_vit": False, "freeze_aligner": False},
    "held out": {**HELD_OUT, "bf16": True},
}
ROWS_OF = {"rows of turns": "turns", "branches": "branches"}

BEFORE_BACKWARD = ("inputs", "tower", "reference", "policy", "loss")
MICRO_BATCH = "swift-grpo-ext: a micro-batch of {} does not fit -> "
SMALLEST = MICRO_BATCH.format(8) + "a smaller --max_completion_length"
ROLLOUT = "swift-grpo-ext: completions do not fit while they are generated -> --use_vllm true"
ELSE = "swift-grpo-ext: OutOfMemoryError: madeup out of memory."


def command(model, digits, output, **options):
    """Words of a run whose micro-batch is one group of eight."""
    return testing.grpo_arguments(
        model,
        digits.train,
        output,
        **{
            "use_cpu": False,
            "num_generations": 8,
            "per_device_train_batch_size": 8,
            "reward_funcs": "ext_count",
            "external_plugins": PLUGINS,
            **options,
        },
    )


def ended(folder, runs, ranks=0, least=0, **environment):
    """How runs ended, of each run (and each of its ranks) one; of ranks that end with another none."""
    path = folder / "runs.jsonl"
    path.write_text("".join(json.dumps({"variables": {}, **run}) + "\n" for run in runs))
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(ranks)] if ranks else []
    launcher += ["--master_port", str(free_port())] if ranks else []
    done = subprocess.run(
        [sys.executable, *launcher, HERE / "swift_rlhf.py", path],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=580,
    )
    lines = [line.split("ENDED ", 1)[1] for line in done.stdout.splitlines() if "ENDED {" in line]
    assert len(lines) >= (least or len(runs) * max(1, ranks)), (done.stdout + done.stderr)[-3000:]
    return [json.loads(line) for line in lines]


def went_well(run):
    assert not run["error"], run["stack"]
    assert not [line for line in run["told"] if "self-check failed" in line or "pass raised" in line]
    assert not run["left"]


def halvings(run):
    return sum("is now split into" in line for line in run["told"])


def test_what_watches_and_evaluates_stays_on_the_device_and_memory_that_runs_out_is_told(
    tiny_qwen, digits, tmp_path
):
    """The first cases of what is below, in one process."""
    words = command(tiny_qwen, digits, tmp_path / "out", val_dataset=f"{digits.test}#4", **WAYS["held out"])
    once = {"words": command(tiny_qwen, digits, tmp_path / "out", max_steps=1)}
    halved, full = ended(tmp_path, [{"words": words, "phase": "backward"}, {**once, "phase": "optimizer"}])
    went_well(halved)
    assert halvings(halved) == 1
    assert full["error"].startswith(ELSE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_way_stays_on_the_device(tiny_qwen, digits, tmp_path):
    more = {
        "resumed": {"resume_from_checkpoint": tmp_path / "saved/checkpoint-1"},
        "held out": {"val_dataset": f"{digits.test}#8"},
    }
    runs = []
    for name, options in WAYS.items():
        words = command(tiny_qwen, digits, tmp_path / name.replace(" ", "_"), **options, **more.get(name, {}))
        variables = {"ROWS_OF": ROWS_OF[name]} if name in ROWS_OF else {}
        runs.append({"words": words, "variables": variables})
        if name == "cut by free memory":
            runs[-1]["limit"] = 16 * GIB
    found = dict(zip(WAYS, ended(tmp_path, runs), strict=True))
    for run in found.values():
        went_well(run)
    assert any("8 x 1 completions instead of 1 x 8" in line for line in found["cut by free memory"]["told"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_axes_of_the_sweep_stay_on_the_device(part, shared_folder, tmp_path):
    """Forty of its covering array: families, images, losses, cuts, tuners, with and without monitors."""
    configurations = axes.covering()
    runs = []
    for name in axes.representative(configurations, 40)[part::4]:
        chosen = configurations[name]
        model = built_once(
            shared_folder / "device" / chosen.model,
            lambda folder, chosen=chosen: inputs.MODELS[chosen.model](folder),
        )
        data = built_once(shared_folder / "sweep" / chosen.data.replace(" ", "_"), inputs.DATA[chosen.data])
        options = {
            **BASE,
            **chosen.options,
            **inputs.types(chosen.model),
            "save_strategy": "no",
            "use_cpu": False,
            "reward_funcs": "even_characters",
            "external_plugins": PLUGINS,
        }
        words = testing.grpo_arguments(model, next(data.glob("*.jsonl")), tmp_path / "out", **options)
        runs.append({"words": words, "variables": chosen.variables})
    for run in ended(tmp_path, runs):
        went_well(run)


@pytest.mark.slow
def test_fp16_on_a_device_of_which_accelerate_takes_it(tiny_qwen, digits, tmp_path):
    """Its scaler of losses is CUDA's, and off."""
    words = command(tiny_qwen, digits, tmp_path / "out", fp16=True)
    (run,) = ended(tmp_path, [{"words": words}], MADE_UP_NAME="sdaa")
    went_well(run)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_each_phase_a_run_goes_on_in_halves_or_ends_by_a_line_that_names_what_to_set(
    tiny_qwen, digits, tmp_path
):
    phases = ("rollout", *BEFORE_BACKWARD, "backward", "optimizer")
    cases = [(phase, times) for phase in phases for times in (1, 99)]
    words = command(tiny_qwen, digits, tmp_path / "out", max_steps=1)
    runs = [{"words": words, "phase": phase, "times": times} for phase, times in cases]
    for (phase, times), run in zip(cases, ended(tmp_path, runs), strict=True):
        line = run["error"].splitlines()[-1:]
        if phase in ("rollout", "optimizer"):
            assert line[0].startswith(ROLLOUT if phase == "rollout" else ELSE), phase
            assert halvings(run) == 0, phase
        elif times == 1:
            went_well(run)
            assert halvings(run) == 1, phase
        else:
            assert line[0].startswith(SMALLEST), phase
            assert halvings(run) == 3, phase
        assert not run["left"], phase


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_the_device_holds_a_run_ends_well_or_by_one_of_these_lines(tiny_qwen, digits, tmp_path):
    limits = [100_000, *range(600_000, 3_800_000, 200_000)]
    words = command(tiny_qwen, digits, tmp_path / "out", max_steps=1)
    last = []
    for run in ended(tmp_path, [{"words": words, "limit": limit} for limit in limits]):
        assert not run["left"]
        last += run["error"].splitlines()[-1:] or [""]
    kinds = [[line.startswith(kind) for kind in (ELSE, ROLLOUT, MICRO_BATCH.format(8))] for line in last]
    assert all(any(kind) or not line for kind, line in zip(kinds, last, strict=True)), last
    assert last[0].startswith(ELSE)  # below the weights
    assert not last[-1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_ranks_reduce_their_gradients_and_end_together_where_one_is_full(tiny_qwen, digits, tmp_path):
    sizes = {"num_generations": 4, "per_device_train_batch_size": 4, "ddp_backend": "gloo"}
    whole = {"words": command(tiny_qwen, digits, tmp_path / "out", **sizes)}
    first, second = ended(tmp_path, [whole], ranks=2)
    for run in (first, second):
        went_well(run)
    assert first["weights"] == second["weights"]
    for phase in ("reference", "policy", "backward"):
        runs = ended(tmp_path, [{**whole, "phase": phase, "rank": "1"}], ranks=2, least=1)
        assert any(run["error"].splitlines()[-1].startswith(MICRO_BATCH.format(4)) for run in runs), phase
