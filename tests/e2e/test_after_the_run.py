"""docs/after-the-run.md: what a run leaves is merged and answers where the package is not installed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.compat import plugin_path
from swift_grpo_ext.plugin_files import plugin_file

PAGE = Path(__file__).resolve().parents[2] / "docs/after-the-run.md"
pytestmark = pytest.mark.timeout(900)  # several commands, each of which starts ms-swift
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in block.splitlines()
]
ON_A_CPU = ["--attn_impl", "sdpa", "--torch_dtype", "float32"]
OF_ANSWERS = ["--max_batch_size", "4", "--load_from_cache_file", "false", "--dataset_num_proc", "1"]


def command(*words):
    """The command of the page that has all of these words."""
    (found,) = [line for line in COMMANDS if all(word in line for word in words)]
    return found


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Python of an environment that sees ms-swift and all else, but not this package."""
    folder = tmp_path_factory.mktemp("stranger") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    python = folder / "bin/python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # Folders named in a .pth file do not get their own .pth files read, so the editable install stays unseen.
    seen = [folder for folder in sys.path if folder.endswith("site-packages")]
    (packages / "host.pth").write_text("\n".join(seen) + "\n")
    asked = run(
        python, folder, "-c", "import importlib.util as u; print(u.find_spec('swift_grpo_ext.parts'))"
    )
    assert asked.stdout.strip() == "None"
    return python


def run(python, folder, *words):
    # A path given to these tests would show a stranger the package.
    hidden = () if python == sys.executable else ("PYTHONPATH",)
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [python, *words],
        cwd=folder,
        env={**inherited, **testing.cpu_environment()},
        capture_output=True,
        text=True,
        timeout=240,
    )


def run_line(python, folder, line):
    """Run a command of the page, on a CPU and as quickly as it goes."""
    line = line.replace("$(swift-grpo-ext path)", str(plugin_file()))
    swift, *words = shlex.split(line)
    assert swift == "swift"
    further = [*ON_A_CPU, *(OF_ANSWERS if words[0] == "infer" else [])]
    return run(python, folder, "-m", "swift.cli.main", *words, *further)


def trained(model, digits, folder, **options):
    """A run of two steps in a folder, whose checkpoint is put where the page has it."""
    arguments = testing.grpo_arguments(
        model,
        digits.train,
        folder / "runs",
        reward_funcs="ext_format",
        save_strategy="steps",
        save_steps=2,
        **options,
    )
    testing.run_in_process("rlhf", arguments)
    (checkpoint,) = (folder / "runs").rglob("checkpoint-2")
    (folder / "output").mkdir()
    shutil.copytree(checkpoint, folder / "output/checkpoint-2")
    shutil.rmtree(folder / "runs")
    shutil.copy(digits.test, folder / "test.jsonl")
    return folder / "output/checkpoint-2"


def names_of_plugins(checkpoint):
    text = (checkpoint / "args.json").read_text()
    assert "swift_grpo_ext/plugins" not in text
    assert str(plugin_file()) not in text
    return json.loads(text)["external_plugins"]


def answers(folder):
    return [row["response"] for row in testing.read_jsonl(folder / "answers.jsonl")]


@pytest.fixture(scope="module")
def published_ids(tmp_path_factory):
    """A Qwen2.5-VL whose special tokens have the ids that ms-swift's own template counts on."""
    return testing.tiny_qwen2_5_vl(tmp_path_factory.mktemp("stock") / "tiny", stock_vocabulary=True)


@pytest.mark.slow
def test_an_adapter_is_merged_and_answers_without_the_package(stranger, published_ids, digits, tmp_path):
    checkpoint = trained(published_ids, digits, tmp_path, tuner_type="lora", target_modules="all-linear")
    assert names_of_plugins(checkpoint) == []
    for line in (command("infer", "--adapters"), command("export"), command("infer", "--model merged")):
        (tmp_path / "answers.jsonl").unlink(missing_ok=True)
        done = run_line(stranger, tmp_path, line)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        if "infer" in line:
            assert len(answers(tmp_path)) == len(testing.read_jsonl(tmp_path / "test.jsonl"))
    assert names_of_plugins(tmp_path / "merged") == []
    scored = shlex.split(command("swift-grpo-ext score"))[1:]
    done = run(sys.executable, tmp_path, "-m", "swift_grpo_ext", *scored)
    assert "ext_numeric" in done.stdout


@pytest.mark.slow
def test_all_weights_answer_without_the_package(stranger, published_ids, digits, tmp_path):
    checkpoint = trained(published_ids, digits, tmp_path)
    assert names_of_plugins(checkpoint) == []
    done = run_line(stranger, tmp_path, command("infer", "--model merged").replace("merged", str(checkpoint)))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert answers(tmp_path)


@pytest.mark.slow
def test_where_our_template_is_needed_the_error_says_so(stranger, tiny_ovis, digits, tmp_path):
    checkpoint = trained(tiny_ovis, digits, tmp_path)
    assert names_of_plugins(checkpoint) == [plugin_path.NEEDED.format(template="ovis2_hf")]
    line = command("infer", "--external_plugins")
    without = re.sub(r'--external_plugins "\S+ \S+"', "", line)
    done = run_line(stranger, tmp_path, without)
    assert done.returncode != 0
    assert "template ovis2_hf comes with swift-grpo-ext: pip install it" in done.stderr
    done = run_line(sys.executable, tmp_path, line)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert answers(tmp_path)


@pytest.mark.slow
def test_an_adapter_of_ovis2_is_merged_with_the_package(tiny_ovis, digits, tmp_path):
    trained(tiny_ovis, digits, tmp_path, tuner_type="lora", target_modules="all-linear")
    plugin = f" --external_plugins {plugin_file()}"
    for line in (command("infer", "--adapters"), command("export"), command("infer", "--model merged")):
        done = run_line(sys.executable, tmp_path, line + plugin)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert names_of_plugins(tmp_path / "merged") == [plugin_path.NEEDED.format(template="ovis2_hf")]
