"""plugins/legacy_swift3.py on releases that have the defects: broken without it, healed with it.

ms-swift 3.4.1 trains for real, with transformers 4.52 and trl 0.17. Of the other releases the wheel is unpacked
in front of that environment, and the code that has the defect is called. All of it is made on first use.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.run import free_port

pytestmark = [pytest.mark.lane, pytest.mark.timeout(1200), pytest.mark.xdist_group("legacy")]

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
ENVS = PROJECT / ".swift_grpo_ext" / "envs"
LEGACY = plugin_file().with_name("legacy_swift3.py")


@pytest.fixture(scope="session")
def python():
    """Python of an environment with ms-swift 3.4.1."""
    folder = ENVS / "legacy-3.4.1"
    if not (folder / "bin/swift").exists():
        overlay = [sys.executable, PROJECT / "tools/overlay.py", "--other-host"]
        subprocess.run([*overlay, folder, PROJECT / "constraints/legacy-3.4.1.txt"], check=True, timeout=1000)
    return folder / "bin/python"


@pytest.fixture(scope="session")
def run(python):
    """Run that Python, with a release of ms-swift in front if one is named; returns status and output."""

    def start(*words, release=None, ranks=1, **variables):
        path = [PROJECT]
        if release is not None:
            path.insert(0, unpacked(release))
        environment = {**os.environ, **testing.cpu_environment(), "OMP_NUM_THREADS": "1", **variables}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
        launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}"]
        launcher += [] if ranks == 1 else [f"--master_port={free_port()}"]
        done = subprocess.run(
            [python, *launcher, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            cwd=HERE,
        )
        return done.returncode, done.stdout + done.stderr

    return start


def unpacked(release):
    """Folder with a release of ms-swift and nothing else."""
    folder = ENVS / f"ms-swift-{release}"
    if not (folder / "swift").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*command, f"ms-swift=={release}"], check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def model(run, tmp_path_factory):
    """A tiny Qwen2.5-VL, written by the transformers that reads it."""
    folder = tmp_path_factory.mktemp("legacy") / "qwen"
    code = "import sys; from swift_grpo_ext import testing; testing.tiny_qwen2_5_vl(sys.argv[1], stock_vocabulary=True)"
    status, output = run("-c", code, str(folder))
    assert status == 0, output
    return folder


@pytest.fixture
def grpo(run, model, digits, tmp_path):
    """Run GRPO for two steps, of ms-swift 3.4.1 if no other release is named."""

    def start(*, release=None, ranks=1, plugins=None, **overrides):
        arguments = {
            "rlhf_type": "grpo",
            "model": model,
            "model_type": "qwen2_5_vl",
            "template": "qwen2_5_vl",
            "dataset": digits.train,
            "output_dir": tmp_path / "out",
            "external_plugins": plugins,
            "train_type": "full",
            "reward_funcs": "format",
            "use_cpu": True,
            "bf16": False,
            "fp16": False,
            "torch_dtype": "float32",
            "attn_impl": "sdpa",
            "num_generations": 4,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "max_completion_length": 4,
            "max_steps": 2,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "dataset_num_proc": 1,
            "split_dataset_ratio": 0,
            **overrides,
        }
        command = ["-m", "swift.cli.rlhf", *testing.command_line(arguments)]
        return run(*command, release=release, ranks=ranks)

    return start


def trained(outcome, steps=2):
    status, output = outcome
    assert status == 0, output[-4000:]
    assert output.count("'grad_norm'") >= steps, output[-4000:]
    return output


def test_a7_dataloader_workers_stop_without_the_file(grpo):
    status, output = grpo(dataloader_num_workers=1)
    assert status != 0
    assert "seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'" in output


def test_a7_and_train_with_it(grpo):
    output = trained(grpo(dataloader_num_workers=1, plugins=LEGACY))
    assert (
        "legacy_swift3 on ms-swift 3.4.1: healed A5-reentrant-ddp, A7-worker-seed, A7-qwen-layout, A9-tensor-parallel"
        in output
    )


DDP = {
    "ranks": 2,
    "ddp_backend": "gloo",
    "train_type": "lora",
    "freeze_vit": False,
    "dataloader_num_workers": 0,
}


def test_a5_ddp_with_checkpointing_stops_without_the_file(grpo):
    # 3.4.1 does not get so far: the layout of Qwen2.5-VL ends the run before.
    status, output = grpo(**DDP, release="3.5.3")
    assert status != 0
    assert "Expected to mark a variable ready only once" in output


@pytest.mark.parametrize("release", [None, "3.5.3"])
def test_a5_and_trains_with_it(grpo, release):
    trained(grpo(**DDP, release=release, plugins=LEGACY))


@pytest.mark.parametrize(
    ("defect", "release", "broken", "healed"),
    [
        ("none_labels", "3.1.1", "TypeError: 'NoneType' object is not iterable", "embeds 10 tokens of 10, labels None"),
        ("none_labels", "3.2.2", "TypeError: 'NoneType' object is not iterable", "embeds 10 tokens of 10, labels None"),
        ("one_generation", "3.5.0", "accepts 1 generation", "ValueError: num_generations 1: an advantage needs"),
        ("one_generation", "3.5.1", "accepts 1 generation", "ValueError: num_generations 1: an advantage needs"),
        ("frozen_tower", "3.4.1", "freezes 0 of 18", "freezes 18 of 18"),
        ("frozen_tower", "3.5.2", "freezes 0 of 18", "freezes 18 of 18"),
        ("tensor_parallel", "3.2.2", "accepts 4 generations for 8 ranks", "ValueError: num_generations 4 is no multiple"),
        ("tensor_parallel", "3.4.1", "accepts 4 generations for 8 ranks", "ValueError: num_generations 4 is no multiple"),
        ("identical_completions", "3.5.0", "seeds [40, 40, 40]", "seeds [40, 41, 42]"),
        ("identical_completions", "3.5.1", "seeds [40, 40, 40]", "seeds [40, 41, 42]"),
        ("identical_completions", "3.5.2", "seeds [40, 40, 40]", "seeds [40, 41, 42]"),
    ],
)  # fmt: skip
def test_other_defects(run, defect, release, broken, healed):
    before, after = (run("defects.py", defect, *plugins, release=release)[1] for plugins in ([], [LEGACY]))
    assert f"RESULT {broken}" in before
    assert f"RESULT {healed}" in after


def test_a_release_that_has_a_fix_is_left_alone(run):
    """3.5.3 seeds by request itself, and refuses groups of one."""
    output = run("defects.py", "identical_completions", LEGACY, release="3.5.3")[1]
    assert "RESULT seeds [40, 41, 42]" in output
    assert "legacy_swift3 on ms-swift 3.5.3: healed A5-reentrant-ddp\n" in output
