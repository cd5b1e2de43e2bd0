import importlib.util
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.errors import EnvironmentMismatchError, UnknownPartError
from swift_grpo_ext.parts import PARTS
from swift_grpo_ext.plugin_files import check_one_copy, is_plugin_file, plugin_file

FILES = [plugin_file(part) for part in ("all", *PARTS)]
LEGACY = FILES[0].with_name("legacy_swift3.py")  # for hosts older than this package supports


def test_every_part_has_its_file_in_one_folder():
    assert len({path.parent for path in FILES}) == 1
    assert {path.name for path in [*FILES, LEGACY]} == {path.name for path in FILES[0].parent.glob("*.py")}


@pytest.mark.parametrize("path", [*FILES, LEGACY], ids=lambda path: path.name)
def test_no_file_shadows_a_module(path):
    # The host puts this folder first on sys.path.
    assert path.stem not in sys.stdlib_module_names
    assert importlib.util.find_spec(path.stem) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_are_a_few_lines(path):
    assert len(Path(path).read_text().splitlines()) <= 15


def test_the_file_for_old_hosts_needs_nothing_of_this_package():
    assert "swift_grpo_ext" not in LEGACY.read_text()


def test_unknown_part_names_the_nearest():
    with pytest.raises(UnknownPartError, match="did you mean 'templates'"):
        plugin_file("template")


def test_a_plugin_file_is_known_wherever_its_copy_lies(tmp_path):
    assert all(map(is_plugin_file, FILES))
    assert is_plugin_file("/elsewhere/site-packages/swift_grpo_ext/plugins/ext_rewards.py")
    assert not is_plugin_file(tmp_path / "plugins/all.py")
    assert not is_plugin_file("/elsewhere/site-packages/swift_grpo_ext/plugins/my_rewards.py")


def test_the_plugin_file_of_another_copy_is_an_error(tmp_path, monkeypatch):
    """Its code would not run: the package that is imported comes from the first copy on the path."""
    check_one_copy()
    other = tmp_path / "swift_grpo_ext/plugins/all.py"
    other.parent.mkdir(parents=True)
    other.write_text(FILES[0].read_text())
    module = type(sys)("_swift_external_1")
    module.__file__ = str(other)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(EnvironmentMismatchError, match="two copies of swift-grpo-ext") as raised:
        check_one_copy()
    assert str(other) in str(raised.value)
    assert "uninstall one" in raised.value.fix
