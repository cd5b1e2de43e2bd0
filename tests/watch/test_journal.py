"""A folder that cannot be written to costs what would be written, and nothing else."""

import time

from swift_grpo_ext.watch.journal import Journal, read_events
from swift_grpo_ext.watch.phases import Phases
from swift_grpo_ext.watch.stall import Watchdog


def test_events_are_read_back(tmp_path):
    journal = Journal(tmp_path, rank=1)
    journal.add("stall", text="one\u2028two")
    journal.add("verdict", text="half \ud800")
    with open(journal.folder / "events.jsonl", "a") as file:
        file.write('{"kind": "verd')
    assert [event["text"] for event in read_events(tmp_path)] == ["one\u2028two", "half ?"]


def test_what_cannot_be_written_is_told_once(tmp_path, capsys):
    (tmp_path / "watch").write_text("a file where the folder belongs")
    journal = Journal(tmp_path, rank=0)
    journal.add("verdict", text="one")
    journal.add("verdict", text="two")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"swift-grpo-ext [watch] cannot write to {tmp_path}/watch, continuing without it")
    assert read_events(tmp_path) == []


def test_a_stall_is_told_although_nothing_can_be_written(tmp_path, capsys):
    (tmp_path / "watch").write_text("")
    watchdog = Watchdog(Phases(), Journal(tmp_path, rank=0), ranks=1, fixed_limit=0.01)
    time.sleep(0.02)
    watchdog.beat()
    assert "phase start has lasted" in capsys.readouterr().err


def test_a_run_whose_folder_is_blocked_ends_well(watched_run, tmp_path):
    (tmp_path / "watch").write_text("")
    run = watched_run("Constant", weight_decay=0, add_version=False, save_strategy="steps", save_steps=4)
    assert len(run.steps) == 4
    assert run.events == []
    assert (tmp_path / "checkpoint-4").is_dir()
