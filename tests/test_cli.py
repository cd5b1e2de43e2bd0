import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from swift_grpo_ext.cli import app
from swift_grpo_ext.settings import GONE_COMMANDS
from swift_grpo_ext.version import __version__


def command(*arguments, **variables):
    import os

    return subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )


def test_path_prints_one_existing_file():
    result = command("path")
    assert result.returncode == 0
    assert result.stdout.strip().endswith("plugins/all.py")
    assert command("path", "rewards").stdout.strip().endswith("plugins/ext_rewards.py")


def test_version():
    assert command("--version").stdout == f"swift-grpo-ext {__version__}\n"


def test_path_of_an_unknown_part_exits_2_with_one_line():
    result = command("path", "rewrds")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "did you mean 'rewards'" in result.stderr


def test_env_says_whether_the_versions_fit():
    result = command("env")
    assert result.returncode == 0, result.stdout
    assert "ms-swift" in result.stdout
    assert "These versions fit together." in result.stdout
    assert "GPU" in result.stdout
    assert "A7-worker-seed" not in result.stdout


def test_env_says_what_became_of_each_patch():
    result = command("env", "--all", SWIFT_GRPO_EXT_DISABLE="compat.C1-native-config", COLUMNS="200")
    printed = " ".join(result.stdout.split())
    assert "A7-worker-seed │ applied" in printed
    assert "A3-zero3-trace │ not needed │ deepspeed 0.19" in printed
    assert "C1-native-config │ disabled" in printed


@pytest.mark.parametrize(
    ("variable", "nearest"), [("DISABEL", "SWIFT_GRPO_EXT_DISABLE"), ("DISABLE", "'trainer'")]
)
def test_env_with_an_unknown_setting_or_part_exits_2(variable, nearest):
    result = command("env", **{f"SWIFT_GRPO_EXT_{variable}": "trainr"})
    assert result.returncode == 2
    assert f"did you mean {nearest}?" in result.stderr


@pytest.mark.parametrize("name", sorted(GONE_COMMANDS))
def test_a_command_that_is_gone_says_what_to_do_instead(name):
    result = command(*name.split(), "LoRA")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"swift-grpo-ext: this command is gone [{name}] -> {GONE_COMMANDS[name]}\n"


def test_every_command_has_a_help_with_an_example_that_can_be_parsed():
    group = typer.main.get_command(app)
    for name, each in group.commands.items():
        assert each.help, name
        assert all(option.help for option in each.params), name
        example = (each.epilog or "").removeprefix("Example: ")
        if name == "path":
            assert '--external_plugins "$(swift-grpo-ext path)"' in example
            continue
        program, command_name, *words = shlex.split(example)
        assert (program, command_name) == ("swift-grpo-ext", name)
        each.make_context(name, words)  # raises for an option or value that it does not know


def test_check_does_not_pass_over_words_behind_a_script(tmp_path):
    (tmp_path / "train.sh").write_text("swift rlhf --model a --rlhf_type grpo")
    for behind in ("other.sh", "--learning_rate"):
        result = CliRunner().invoke(app, ["check", str(tmp_path / "train.sh"), behind])
        assert result.exit_code == 3
        assert behind in result.stdout
    (tmp_path / "train.sh").write_text('swift rlhf --model a --rlhf_type grpo "$@"')
    result = CliRunner().invoke(app, ["check", str(tmp_path / "train.sh"), "--learning_rate", "0"])
    assert (result.exit_code, "SWIFT_GRPO_EXT_PREFLIGHT=only" in result.stdout) == (3, True)
