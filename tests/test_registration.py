import os
import subprocess
import sys
import textwrap

import pytest

from swift_grpo_ext import registration, versions
from swift_grpo_ext.errors import EnvironmentMismatchError, UnknownPartError
from swift_grpo_ext.parts import PARTS
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.settings import current_settings


@pytest.fixture
def fresh(monkeypatch):
    """A process in which no part was registered yet, and whose rooms only note that they were called."""
    called = []

    class Room:
        def __init__(self, module):
            self.module = module

        def register(self):
            called.append(self.module)
            return [f"name-of-{self.module}"]

    monkeypatch.setattr(registration, "_registered", {})
    monkeypatch.setattr(registration, "import_module", Room)
    monkeypatch.setattr("sys.argv", ["swift"])  # a test worker's is that of a child, which says nothing
    current_settings.cache_clear()
    yield called
    current_settings.cache_clear()


def test_registers_every_part_once_and_prints_one_line(fresh, capsys):
    assert list(registration.register()) == list(PARTS)
    registration.register()
    assert fresh == [part.module for part in PARTS.values()]
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "ms-swift" in line
    assert registration.SHARED in line  # a process of unknown kind
    assert not line.rstrip().endswith("rewards")  # none is typed


@pytest.mark.parametrize("names", [1, 40])
def test_megatron_is_told_what_is_not_there(fresh, capsys, monkeypatch, names):
    """Where Megatron's releases are not the tested ones, ms-swift's own trainer runs."""
    monkeypatch.setattr(
        "sys.argv", ["/x/swift/cli/_megatron/rlhf.py", "--reward_funcs", "ext_count", "ext_format"]
    )
    absent = "swift_grpo_ext.megatron"
    registered = lambda room: [] if room.module == absent else ["n"] * names  # noqa: E731
    monkeypatch.setattr(registration.import_module("x").__class__, "register", registered)
    registration.register()
    line = capsys.readouterr().err.strip()
    assert registration.NOT_UNDER_MEGATRON in line
    assert "rewards ext_count ext_format" in line
    assert registration.SHARED not in line
    assert len(line) <= registration.LONGEST


def test_a_long_line_ends_behind_a_whole_word(fresh, capsys, monkeypatch):
    """As far as its releases and rewards leave room it says where the report will be."""
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "")
    current_settings.cache_clear()
    between = "torch 2.14.1 tested with 2.14.0"
    monkeypatch.setattr(versions, "between_tested", lambda *_: [between])
    words = ["/x/swift/cli/rlhf.py", "--rlhf_type", "grpo", "--reward_funcs", "ext_count", "ext_format"]
    for folder, end in (("output/run", "report in output/run"), ("output/" + 90 * "x", "report in ...")):
        monkeypatch.setattr("sys.argv", [*words, "--output_dir", folder])
        registration._registered.clear()
        registration.register()
        line = capsys.readouterr().err.strip()
        assert between in line
        assert line.endswith(end)


def test_a_second_plugin_adds_only_what_is_missing(fresh, capsys):
    registration.register(["rewards"])
    registration.register(["rewards", "trainer"])
    assert fresh == ["swift_grpo_ext.rewards", "swift_grpo_ext.trainer"]


def test_disabled_parts_stay_out(fresh, monkeypatch, capsys):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer,presets")
    assert set(registration.register()) == set(PARTS) - {"trainer", "presets"}
    assert "off: trainer, presets" in capsys.readouterr().err


def test_unknown_parts_are_named(fresh, monkeypatch):
    with pytest.raises(UnknownPartError, match="'rewrds', did you mean 'rewards'"):
        registration.register(["rewrds"])
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainr")
    current_settings.cache_clear()
    with pytest.raises(UnknownPartError, match="'trainr', did you mean 'trainer'"):
        registration.register()
    assert fresh == []


def test_wrong_host_is_refused_with_reason_and_mend(fresh, monkeypatch):
    real = versions.installed_version
    monkeypatch.setattr(
        versions, "installed_version", lambda name: "3.9.0" if name == "ms-swift" else real(name)
    )
    with pytest.raises(EnvironmentMismatchError) as raised:
        registration.register()
    message = str(raised.value)
    assert "ms-swift 3.9.0 is outside >=4.5,<4.7" in message
    assert "refused parts compat, templates, trainer" in message
    assert 'pip install "ms-swift>=4.5,<4.7"' in message
    assert "\n" not in message
    assert fresh == []


def test_only_the_parts_that_need_a_missing_package_are_refused(fresh, monkeypatch):
    real = versions.installed_version
    monkeypatch.setattr(versions, "installed_version", lambda name: None if name == "msgspec" else real(name))
    with pytest.raises(
        EnvironmentMismatchError, match="refused parts trainer: msgspec is not installed"
    ) as raised:
        registration.register()
    assert "SWIFT_GRPO_EXT_DISABLE=trainer" in str(raised.value)
    assert set(registration._registered) == set(PARTS) - {"trainer"}


def test_torchvision_built_for_another_torch_is_named(monkeypatch):
    real = versions.installed_version
    monkeypatch.setattr(
        versions, "installed_version", lambda name: "2.6.0" if name == "torch" else real(name)
    )
    with pytest.raises(
        EnvironmentMismatchError, match=r"torchvision .* was built for torch==.*torch 2\.6\.0"
    ):
        versions.require("torchvision")


def test_import_alone_is_light_and_registers_nothing():
    code = """
        import sys, swift_grpo_ext, swift_grpo_ext.cli
        from swift_grpo_ext import registration
        heavy = {"torch", "transformers", "swift", "numpy", "deepspeed", "vllm"} & set(sys.modules)
        assert not heavy, heavy
        assert registration._registered == {}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_an_error_of_ours_ends_a_run_by_its_line_alone():
    script = """
        import sys
        from swift_grpo_ext import registration
        from swift_grpo_ext.errors import RewardError
        registration._registered.update(dict.fromkeys(registration.PARTS, []))
        registration.register()
        raise {}
    """
    ends = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script.format(error))], capture_output=True, text=True
        )
        for error in ('RewardError("no reward", fix="give one")', 'ValueError("of another")')
    ]
    assert [end.returncode for end in ends] == [1, 1]
    assert ends[0].stderr == "swift-grpo-ext: no reward -> give one\n"
    assert "Traceback" in ends[1].stderr
    assert ends[1].stderr.endswith("ValueError: of another\n")


def test_an_error_of_registration_itself_is_a_line_too():
    end = subprocess.run(
        [sys.executable, plugin_file()],
        env={**os.environ, "SWIFT_GRPO_EXT_REWARD_TABEL": "rewards.json"},
        capture_output=True,
        text=True,
    )
    assert end.returncode == 1
    (line,) = end.stderr.splitlines()
    assert line.endswith("[SWIFT_GRPO_EXT_REWARD_TABEL] -> did you mean SWIFT_GRPO_EXT_REWARD_TABLE?")


def test_the_hook_of_our_errors_is_put_on_once(monkeypatch):
    """ms-swift replays plugin files: a hook in a hook in a hook would be left."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    registration.register([])
    hook = sys.excepthook
    assert hook is not sys.__excepthook__
    registration.register([])
    assert sys.excepthook is hook
