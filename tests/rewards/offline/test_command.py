"""`swift-grpo-ext score` on real files."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swift_grpo_ext.errors import DatasetRowError, OutputFolderError, RewardError, SettingsError
from swift_grpo_ext.rewards.catalogue import NAMES, get_reward
from swift_grpo_ext.rewards.offline import command, printed
from tests.rewards.offline.rows import BOX, HALF, ROWS_OF_THREE, lines
from tests.rewards.rows import ROWS

EXAMPLES = Path(__file__).parents[3] / "examples" / "tasks"


def test_the_command_prints_a_table_names_unscored_rows(data, tmp_path):
    answers = lines(tmp_path / "answers.jsonl", [str(BOX), {"response": HALF}, {"completion": "text"}])
    arguments = ["score", data, "--reward", "ext_iou", "--reward", "ext_format", "--completions", answers]
    script = (
        "import sys; from swift_grpo_ext.cli import app; app(standalone_mode=False); "
        "assert not {'torch', 'swift', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments), "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "40"},
    )
    assert done.returncode == 0, done.stderr
    header, *rows = (line.split() for line in done.stdout.splitlines() if line.strip())
    assert header == ["reward", "row", "gold", "place", "read", "score", "reason"]
    assert ["ext_iou", "3", "-"] in [row[:3] for row in rows]
    assert "ext_iou: 2 of 3 rows scored, mean 0.75, std 0.25" in done.stdout


def test_gold_answers_get_the_maximum_or_their_rows_are_named(data, run, tmp_path, capsys):
    assert run(lines(tmp_path / "good.jsonl", ROWS_OF_THREE[:2]), "ext_iou", "ext_giou", gold=True)[0]
    assert "ext_giou: 2 of 2 gold answers get the maximum of 1" in capsys.readouterr().out
    well, records = run(data, "ext_iou", gold=True)
    assert not well
    assert [record["score"] for record in records] == [1.0, 1.0, None]
    out = capsys.readouterr().out
    assert "ext_iou: 2 of 3 gold answers get the maximum of 1" in out
    assert re.search(r"^ *ext_iou +3 +-.* no gold in column solution", out, re.M)


def test_a_gold_that_cannot_be_read_is_named_with_its_reason(run, tmp_path, capsys):
    data = lines(tmp_path / "data.jsonl", [{"solution": 5}, {"solution": "five or six"}])
    assert not run(data, "ext_count", gold=True)[0]
    assert re.search(r"^ *ext_count +2 +five or six .* gold 'five or six'", capsys.readouterr().out, re.M)


def test_the_command_exits_with_1_if_a_gold_answer_is_not_best(data, tmp_path):
    arguments = ["score", data, "--reward", "ext_iou", "--gold", "--output", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("name", [name for name in NAMES if get_reward(name).gold])
def test_gold_of_every_form_of_every_reward(name, run, tmp_path):
    assert run(lines(tmp_path / "data.jsonl", ROWS[name]), name, gold=True)[0]


def test_the_table_gives_tasks_parameters_and_gold_columns(run, tmp_path, capsys):
    rows = [
        {"task": "box", "target": [0.1, 0.1, 0.2, 0.2]},
        {"task": "ocr", "solution": "text"},
        {"task": "ocr", "solution": None},
    ]
    table = {
        "rewards": {
            "ext_iou": {"tasks": ["box"], "gold": "target", "parameters": {"frame": "norm1"}},
            "ext_ocr": {"tasks": ["ocr"]},
        }
    }
    data = lines(tmp_path / "data.jsonl", rows)
    well, records = run(data, "ext_iou", "ext_ocr", gold=True, table=json.dumps(table))
    assert [(record["row"], record["reward"], record["score"]) for record in records] == [
        (1, "ext_iou", 1.0),
        (2, "ext_ocr", 1.0),
        (3, "ext_ocr", None),
    ]
    assert not well


def test_gold_of_the_examples_gets_the_maximum_although_resized_sizes_are_unknown(run, capsys):
    names = ("ext_iou", "ext_click", "ext_ocr", "ext_count")
    table = str(EXAMPLES / "rewards.json")
    well, records = run(EXAMPLES / "data" / "mixed.jsonl", *names, gold=True, table=table)
    assert well, capsys.readouterr().out
    assert len(records) == 32


def test_an_output_that_cannot_be_written_is_an_error(data):
    with pytest.raises(OutputFolderError, match=r"cannot write there: .* \[--output /proc/none\]"):
        command.run(data, ["ext_iou"], gold=True, output=Path("/proc/none"))


def test_gold_of_no_row_is_not_well(run, tmp_path, capsys):
    data = lines(tmp_path / "data.jsonl", [{"task": "box", "solution": 3}])
    table = json.dumps({"rewards": {"ext_count": {"tasks": ["count"]}}})
    assert not run(data, "ext_count", gold=True, table=table)[0]
    assert "ext_count: 0 of 0 gold answers get the maximum" in capsys.readouterr().out


def test_a_reward_at_fault_fails_the_command(data, run, monkeypatch):
    from swift_grpo_ext.rewards.offline import scoring
    from tests.rewards.jobs import a_reward, broken

    monkeypatch.setattr(scoring, "get_reward", lambda name: a_reward(broken))
    monkeypatch.setattr(command, "require_reward", lambda name, plugins: None)
    well, records = run(lines(data, [{"completion": "x"}]), "ext_test")
    assert not well
    assert records[0]["reason"] == "KeyError('x')"


def test_many_unscored_rows_are_counted_and_ten_shown(run, tmp_path, capsys):
    rows = [{"completion": "3", "solution": 3}] + [{"completion": "3"}] * 25
    run(lines(tmp_path / "data.jsonl", rows), "ext_count")
    out = capsys.readouterr().out
    assert len(re.findall(r"^ *ext_count +\d+ ", out, re.M)) == printed.ROWS
    assert "ext_count: 1 of 26 rows scored" in out


def test_a_missing_gold_is_named_by_the_column_of_the_table(run, tmp_path, capsys):
    table = json.dumps({"rewards": {"ext_count": {"gold": "how_many"}}})
    rows = [{"completion": "3", "how_many": 3, "solution": 4}, {"completion": "3", "how_many": None}]
    run(lines(tmp_path / "data.jsonl", rows), "ext_count", table=table)
    assert re.search(r"^ *ext_count +2 .* no gold in column how_many *$", capsys.readouterr().out, re.M)


def test_an_error_where_no_row_was_scored_names_the_columns(run, tmp_path):
    data = lines(tmp_path / "data.jsonl", [{"completion": "3", "label": 3}] * 2)
    with pytest.raises(DatasetRowError, match="no row was scored") as caught:
        run(data, "ext_count")
    assert "completion, label" in caught.value.fix


def test_a_reward_of_the_user_that_raises_is_one_line(run, tmp_path):
    plugin = tmp_path / "raising.py"
    plugin.write_text(
        "from swift.rewards import ORM, orms\n"
        "class Raising(ORM):\n"
        "    def __call__(self, completions, **kwargs):\n"
        "        return [1 / len(text) for text in completions]\n"
        "orms['raising_of_mine'] = Raising\n"
    )
    data = lines(tmp_path / "data.jsonl", [{"completion": "a"}, {"completion": ""}])
    with pytest.raises(RewardError, match=r"'raising_of_mine' raised ZeroDivisionError.*row 2"):
        run(data, "raising_of_mine", plugins=[str(plugin)])


def test_a_fault_of_the_table_is_told_with_the_option_and_the_file(data, run, tmp_path):
    table = tmp_path / "table.json"
    table.write_text('{"rewards": {"ext_iou": {"wieght": 1}}}')
    with pytest.raises(SettingsError) as caught:
        run(data, "ext_iou", gold=True, table=str(table))
    assert caught.value.where == f"--table={table}"


@pytest.mark.parametrize("plugins", [[], ["mine.py"]])
def test_an_unknown_reward_is_named_in_a_moment(plugins, data):
    with pytest.raises(RewardError, match="no reward is called 'ext_cosine' -> ms-swift's own"):
        command.run(data, ["ext_cosine"], gold=True, plugins=plugins)
    with pytest.raises(RewardError, match="no reward is called 'ext_iuo' -> did you mean 'ext_iou'"):
        command.run(data, ["ext_iuo"], gold=True, plugins=plugins)


def test_a_mistyped_reward_of_ms_swift_is_named_before_it_is_imported(data):
    started = time.monotonic()
    script = (
        "import sys; from swift_grpo_ext.cli import app\n"
        "try: app(standalone_mode=False)\n"
        "finally: assert not {'torch', 'swift', 'datasets'} & set(sys.modules)"
    )
    arguments = ["score", str(data), "--gold", "--reward", "acuracy"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert "no reward is called 'acuracy' -> did you mean 'accuracy'" in done.stderr
    assert "AssertionError" not in done.stderr
    assert time.monotonic() - started < 10, "0.7 s on a quiet machine; importing ms-swift takes 20"


def test_rewards_of_ms_swift_and_of_the_user(run, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from swift.rewards import ORM, orms\n"
        "class Short(ORM):\n"
        "    def __call__(self, completions, solution, **kwargs):\n"
        "        return [float(len(text) < len(gold) + 3) for text, gold in zip(completions, solution)]\n"
        "orms['short_of_mine'] = Short\n"
    )
    rows = [
        {"solution": "<answer>4</answer>", "completion": text} for text in ("<answer>4</answer>", "x" * 99)
    ]
    data = lines(tmp_path / "data.jsonl", rows)
    records = run(data, "short_of_mine", "accuracy", plugins=[str(plugin)])[1]
    scores = [(record["reward"], record["score"]) for record in records]
    assert scores[:2] == [("short_of_mine", 1.0), ("short_of_mine", 0.0)]
    assert scores[3] == ("accuracy", 0.0)
    with pytest.raises(RewardError, match="did you mean 'short_of_mine'"):
        run(data, "short_of_min", plugins=[str(plugin)])


def test_the_table_shows_gold_place_value_score_and_reason(run, tmp_path, capsys):
    rows = [
        {"solution": 7, "completion": "<think>7</think><answer> 4 </answer>"},
        {"solution": 7, "completion": "<answer>7</answer>"},
        {
            "solution": 7,
            "completion": "I think there might be some cats, but who could ever count all of them?",
        },
    ]
    _, records = run(lines(tmp_path / "data.jsonl", rows), "ext_count")
    assert [record["score"] for record in records] == [0.0, 1.0, 0.0]
    assert [record["read"] for record in records] == ["4", "7", None]
    assert records[0]["gold"] == 7
    assert "7" in records[0]["reason"]
    assert records[2]["reason"].startswith("unread: ")
    out = capsys.readouterr().out
    assert re.search(r"^ *ext_count +1 +7 +4 +4 +0\.000 +\S", out, re.M)
    assert "ext_count: 1 of 3 rows are not in its form, the first unread: no <answer>" in out
    assert "could ever count all of them?'" in out


def test_a_file_that_cannot_be_written_ends_the_command_with_one_line(data, tmp_path):
    (tmp_path / "scores.jsonl").mkdir()
    words = ["score", str(data), "--reward", "ext_iou", "--gold", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "swift_grpo_ext.cli", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"[Errno 21] Is a directory: '{tmp_path}/scores.jsonl'"]
