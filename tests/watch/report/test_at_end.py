"""A run leaves its report behind when it ends, and no fault of the report hides that it ended well."""

import pytest

from swift_grpo_ext.errors import DeadRunError
from swift_grpo_ext.testing import newest_version
from swift_grpo_ext.watch import report
from tests.watch.conftest import watched_run  # noqa: F401


def test_a_run_leaves_its_report_behind(watched_run):  # noqa: F811
    run = watched_run("Good", env={"DISABLE": ""})
    assert "Too early to tell" in (run.folder / "report.html").read_text(encoding="utf-8")


def test_so_does_a_dead_run_that_is_stopped(watched_run, tmp_path):  # noqa: F811
    with pytest.raises(DeadRunError):
        watched_run(
            "Constant",
            env={"ON_DEAD": "stop", "DISABLE": ""},
            weight_decay=0,
            max_steps=40,
        )
    page = (newest_version(tmp_path) / "report.html").read_text(encoding="utf-8")
    assert "every reward in every group is equal" in page


def test_a_report_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(report.logger, "warning", said.append)
    report.report_at_end(tmp_path / "nothing here")
    (line,) = said
    assert line.startswith("swift-grpo-ext [report] not written, OutputFolderError: ")
    assert line.endswith(f"later: swift-grpo-ext report '{tmp_path}/nothing here'")


def test_a_run_that_logged_very_much_is_left_to_the_command(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(report, "MOST_BYTES", 10)
    monkeypatch.setattr(report.logger, "info", said.append)
    (tmp_path / "completions.jsonl").write_text("x" * 11)
    report.report_at_end(tmp_path)
    assert "much was logged" in said[0]
    assert not (tmp_path / "report.html").exists()
