"""What the host left is read, whatever state it is in."""

import json
import math

import pytest

from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.report import write_report
from swift_grpo_ext.watch.report.bill import bill
from swift_grpo_ext.watch.report.run import read_run
from swift_grpo_ext.watch.report.verdict import judge
from tests.watch.report.made_up_run import data_of, table, write_run


def test_completions_of_an_evaluation_are_none_of_training(tmp_path):
    tables = [table(1, ["a"] * 4), table(1, ["b"] * 2) | {"split": ["eval"] * 2}]
    run = read_run(write_run(tmp_path / "run", [0.5] * 5, completions=tables))
    assert [row["completion"] for row in run.completions] == ["a"] * 4
    assert run.evaluated == 2


def test_a_folder_without_a_step_is_refused(tmp_path):
    (tmp_path / "logging.jsonl").write_text('{"train_runtime": 1}\n')
    with pytest.raises(OutputFolderError, match="no GRPO step has been logged"):
        read_run(tmp_path)


def test_text_that_ends_lines_elsewhere_ends_none_here(tmp_path):
    """The host writes U+2028, U+2029 and U+0085 as they are; for `str.splitlines` they are ends of lines."""
    text = "one\u2028two\u2029three\x85four"
    folder = write_run(tmp_path / "run", [0.1] * 5)
    line = json.dumps(table(1, [text] * 4), ensure_ascii=False) + "\n"
    (folder / "completions.jsonl").write_text(line + json.dumps(table(2, ["7"] * 4)) + "\n", "utf-8")
    Journal(folder, rank=0).add("stall", step=1, text=text)
    run = read_run(folder)
    assert [row["completion"] for row in run.completions] == [text] * 4 + ["7"] * 4
    assert f"Monitor [stall] at step 1: {text}" in judge(run).reasons


def test_a_file_that_is_written_to_at_this_moment_is_read(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [0.1] * 5)
    whole = json.dumps(table(1, ["数字"] * 4), ensure_ascii=False).encode()
    (folder / "completions.jsonl").write_bytes(whole + b"\n" + whole[: whole.index("数".encode()) + 1])
    (folder / "args.json").write_text('{"num_generations": 4, "mod')
    run = read_run(folder)
    assert len(run.completions) == 4
    assert run.arguments == {}
    assert capsys.readouterr().err == ""


def test_a_damaged_line_is_left_out_and_told(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [0.1] * 12)
    lines = (folder / "logging.jsonl").read_text().splitlines(keepends=True)
    lines[3] = lines[3][:40] + lines[4]  # killed while it wrote, then resumed into the same file
    (folder / "logging.jsonl").write_text("".join(lines))
    run = read_run(folder)
    assert [record["step"] for record in run.records] == [1, 2, 3, *range(5, 13)]
    assert capsys.readouterr().err.endswith(f"no JSON object: {folder}/logging.jsonl:4\n")


def test_steps_that_a_resumed_run_did_again_are_shown_once(tmp_path):
    """``--add_version false``: the resumed run writes into the files of the one before."""
    folder = write_run(
        tmp_path / "run", [0.1] * 6, completions=[table(step, ["old"] * 8) for step in (1, 4, 5)]
    )
    again = write_run(
        tmp_path / "again", [0.9] * 6, completions=[table(step, ["new"] * 8) for step in (4, 6)]
    )
    kept = (again / "logging.jsonl").read_text().splitlines(keepends=True)[3:]
    with open(folder / "logging.jsonl", "a") as file:
        file.writelines(kept)
    with open(folder / "completions.jsonl", "a") as file:
        file.write((again / "completions.jsonl").read_text())
    run = read_run(folder)
    assert list(run.series("reward").items()) == [(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.9), (5, 0.9), (6, 0.9)]
    shown = [(row["step"], row["completion"]) for row in run.completions]
    assert shown == [(1, "old")] * 8 + [(4, "new")] * 8 + [(6, "new")] * 8


def test_columns_of_other_kinds_than_expected_break_nothing(tmp_path):
    odd = table(1, ["7"] * 4) | {
        "advantages": ["high", None, math.nan, True],
        "step": ["one", None, 2, "3"],
        "images": ["a.png", None, 5, ["b.png"]],
        "regions": [{"image": "first"}, {"image": None}, 3, []],
        "prompt": [["list"], None, 4, "text"],
    }
    folder = write_run(tmp_path / "run", [0.1] * 5, completions=[odd])
    (folder / "args.json").write_text('["no table"]')
    assert len(data_of(write_report(folder))["runs"][0]["completions"]) == 4


def test_a_rollout_of_several_steps_has_a_reward_once(tmp_path):
    """``--num_iterations 2``: the host logs its completions with both steps, and a reward only with the first."""
    tables = [table(step, [f"{(step + 1) // 2}"] * 8) | {"entropy": [0.1 * step] * 8} for step in range(1, 7)]
    folder = write_run(tmp_path / "run", [0.1] * 6, completions=tables)
    records = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    for record in records[1:6:2]:
        record.pop("reward")
        record.pop("completions/mean_length")
    (folder / "logging.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "args.json").write_text('{"num_generations": 4, "num_iterations": 2}')
    run = read_run(folder)
    assert tuple(run.series("reward")) == (1, 3, 5)
    assert tuple(run.series("grad_norm")) == (1, 2, 3, 4, 5, 6)


def resumed_run(folder, before, after, step):
    """A run that was resumed after a step: v0 beside v1, which counts on."""
    write_run(folder / "v0-1", before, completions=[table(n, ["7"] * 4) for n in range(1, len(before) + 1)])
    newest = write_run(folder / "v1-2", [0.0] * step + after, completions=[table(step + 1, ["8"] * 4)])
    lines = (newest / "logging.jsonl").read_text().splitlines(keepends=True)
    (newest / "logging.jsonl").write_text("".join(lines[step:]))
    arguments = {"num_generations": 4, "resume_from_checkpoint": str(folder / f"v0-1/checkpoint-{step}")}
    (newest / "args.json").write_text(json.dumps(arguments))
    return newest


def test_a_resumed_run_links_the_part_before(tmp_path):
    newest = resumed_run(tmp_path, [0.1] * 8, [0.5] * 4, step=6)
    run = read_run(tmp_path)
    assert run.folder == newest
    assert list(run.series("reward")) == [7, 8, 9, 10]
    page = write_report(tmp_path).html.read_text(encoding="utf-8")
    assert 'Resumed from checkpoint-6 of <a href="../v0-1/report.html">v0-1</a>' in page


def test_the_bill_is_of_the_mean_step(tmp_path):
    folder = write_run(tmp_path / "run", [0.5] * 4)
    journal = Journal(folder, rank=0)
    journal.add("bill", step=5, steps=5, seconds={"rollout": 15.0, "forward": 4.0, "log": 0.01}, work={})
    journal.add("bill", step=6, steps=1, seconds={"rollout": 3.0, "forward": 2.0, "prepare": 0.1}, work={})
    seconds = {name: round(spent, 3) for name, spent in bill(read_run(folder)).items()}
    assert seconds == {"rollout": 3.0, "policy forward": 1.0, "preparing rows": 0.017, "logging": 0.002}
    assert bill(read_run(write_run(tmp_path / "other", [0.5] * 4))) == {}
