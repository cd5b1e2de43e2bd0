from pathlib import Path

import pytest

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.folders import claimed, made_folder


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").touch()
    return tmp_path / "file"


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert made_folder(tmp_path / "a/b", "--output").is_dir()
    assert made_folder(tmp_path / "a/b", "--output") == tmp_path / "a/b"


def test_a_file_in_its_place_or_above_it_is_an_error(file):
    for path in (file, file / "below", Path("/proc/none")):
        with pytest.raises(
            OutputFolderError, match=rf"cannot write there: .*\[--output {path}\] -> give a folder"
        ):
            made_folder(path, "--output")


def test_a_folder_that_may_not_be_written_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "os.access", lambda path, mode: False
    )  # tests may run as root, who may write anywhere
    with pytest.raises(OutputFolderError, match="Permission denied"):
        made_folder(tmp_path, "--output")


def test_a_converted_checkpoint_needs_one_too(monkeypatch, file):
    from swift_grpo_ext.models import ovis2_convert

    for name in ("empty_model", "_shards"):
        monkeypatch.setattr(ovis2_convert, name, lambda _: None)
    monkeypatch.setattr(ovis2_convert, "_read_json", lambda _: {})
    with pytest.raises(OutputFolderError, match=r"\[TARGET "):
        ovis2_convert.convert_checkpoint(file.parent, file / "below")


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    folder = tmp_path / "output"
    with claimed(folder), claimed(folder, writes=False), claimed(tmp_path / "other"):
        second = claimed(folder)
        with pytest.raises(OutputFolderError, match=r"another run writes its logs .* --add_version true"):
            second.__enter__()
    with claimed(folder):
        pass
    assert list(folder.iterdir()) == []


def test_a_folder_without_locks_is_claimed_by_all(file):
    with claimed(file / "below"), claimed(Path("/proc/none")):
        pass
