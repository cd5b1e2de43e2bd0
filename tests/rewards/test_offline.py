"""`swift-grpo-ext score` on real files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from rewards.rows import ROWS
from swift_grpo_ext.errors import DatasetRowError, MissingExtraError, RewardError, SettingsError
from swift_grpo_ext.rewards.catalogue import NAMES, get_reward
from swift_grpo_ext.rewards.offline import command, printed
from swift_grpo_ext.rewards.offline.files import samples_of
from swift_grpo_ext.rewards.runtime import replay
from swift_grpo_ext.rewards.runtime.ledger import Failure
from swift_grpo_ext.rewards.runtime.runner import catalogue_pool

BOX = [10, 20, 110, 220]
ROWS_OF_THREE = [
    {
        "messages": [{"role": "user", "content": "<image>Where is the cat?"}],
        "images": ["a.png"],
        "solution": BOX,
    },
    {
        "messages": [{"role": "user", "content": "<image>Where is the dog?"}],
        "images": ["b.png"],
        "solution": BOX,
    },
    {
        "messages": [{"role": "user", "content": "<image>Read [bold]it[/]."}],
        "images": ["c.png"],
        "solution": None,
    },
]
HALF = "<answer>[10, 20, 60, 220]</answer>"


def lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


@pytest.fixture(scope="module", autouse=True)
def _no_children_left():
    yield
    catalogue_pool().close()


@pytest.fixture
def data(tmp_path):
    return lines(tmp_path / "data.jsonl", ROWS_OF_THREE)


@pytest.fixture
def run(tmp_path):
    """Score; returns whether all is well, and the written records."""

    def run(data, *rewards, **options):
        well = command.run(data, rewards, output=tmp_path / "out", **{"plot": False, **options})
        written = (tmp_path / "out" / "scores.jsonl").read_text().splitlines()
        return well, [json.loads(line) for line in written]

    return run


def test_the_command_prints_a_table_names_unscored_rows_and_plots(data, tmp_path):
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
    assert (
        "ext_iou           2          1   0.750   0.250   0.500    0.750   1.000    50.0%     0.0%"
        in done.stdout
    )
    assert "ext_iou: 1 of 3 rows without a score" in done.stdout
    assert "row 3: no gold in column solution" in done.stdout
    assert "[image 'c.png', question '<image>Read [bold]it[/].']" in done.stdout
    with Image.open(tmp_path / "scores.png") as plot:
        assert plot.size == (1050, 720)
        assert len(set(plot.convert("RGB").getdata())) > 10


def test_gold_answers_get_the_maximum_or_their_rows_are_named(data, run, tmp_path, capsys):
    assert run(lines(tmp_path / "good.jsonl", ROWS_OF_THREE[:2]), "ext_iou", "ext_giou", gold=True)[0]
    assert "ext_giou: all 2 gold answers get the maximum of 1" in capsys.readouterr().out
    well, records = run(data, "ext_iou", gold=True)
    assert not well
    assert [record["score"] for record in records] == [1.0, 1.0, None]
    out = capsys.readouterr().out
    assert "ext_iou: 1 of 3 rows below the maximum of 1" in out
    assert "row 3: no gold in column solution" in out


def test_a_gold_that_cannot_be_read_is_named_with_its_reason(run, tmp_path, capsys):
    data = lines(tmp_path / "data.jsonl", [{"solution": 5}, {"solution": "five or six"}])
    assert not run(data, "ext_count", gold=True)[0]
    assert "row 2: gold 'five or six'" in capsys.readouterr().out


def test_the_command_exits_with_1_if_a_gold_answer_is_not_best(data, tmp_path):
    arguments = ["score", data, "--reward", "ext_iou", "--gold", "--no-plot", "--output", tmp_path]
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


def test_sizes_of_local_images_are_read(run, tmp_path):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    row = {
        "images": ["a.png"],
        "solution": [64, 48, 128, 96],
        "frame": "norm1000",
        "gold_frame": "pixel_original",
    }
    data = lines(
        tmp_path / "data.jsonl",
        [{**row, "completion": "[100, 100, 200, 200]"}, {**row, "images": ["no.png"]}],
    )
    answers = lines(tmp_path / "answers.jsonl", ["[100, 100, 200, 200]"] * 2)
    _, (first, second) = run(data, "ext_iou", completions=answers)
    assert first["score"] == 1.0
    assert second["reason"] == "pixel_original needs column image_sizes for image 0"


EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


def test_gold_of_the_examples_gets_the_maximum_although_resized_sizes_are_unknown(run, capsys):
    names = ("ext_iou", "ext_click", "ext_ocr", "ext_count")
    table = str(EXAMPLES / "rewards.json")
    well, records = run(EXAMPLES / "data" / "mixed.jsonl", *names, gold=True, table=table)
    assert well, capsys.readouterr().out
    assert len(records) == 32


def test_gold_needs_no_image(run, tmp_path):
    row = {
        "images": ["https://127.0.0.1/a.png"],
        "solution": [64, 48, 128, 96],
        "gold_frame": "pixel_original",
    }
    assert run(lines(tmp_path / "data.jsonl", [row]), "ext_iou", gold=True)[0]


def test_figures_as_json(data, run, capsys):
    assert not run(data, "ext_iou", gold=True, as_json=True)[0]
    (figures,) = json.loads(capsys.readouterr().out)["rewards"]
    assert (figures["reward"], figures["scored"], figures["unscored"], figures["mean"]) == (
        "ext_iou",
        2,
        1,
        1.0,
    )
    assert [row["row"] for row in figures["rows"]] == [3]


def test_failed_completions_of_a_reward_of_ones_own_are_told_apart(run, tmp_path):
    data = lines(tmp_path / "failures.jsonl", [{"reward": "Mine", "completion": "x"}])
    with pytest.raises(RewardError, match="'Mine' is a reward of your own"):
        run(data)


def test_an_output_that_cannot_be_written_is_an_error(data):
    with pytest.raises(SettingsError, match=r"cannot write: .* \[--output /proc/none\]"):
        command.run(data, ["ext_iou"], gold=True, output=Path("/proc/none"), plot=False)


def test_an_infer_result_of_other_rows_is_refused(data, run, tmp_path):
    def result(row, text):
        asked = [*ROWS_OF_THREE[row]["messages"], {"role": "assistant", "content": text}]
        return {"response": text, "labels": None, "logprobs": None, "messages": asked, "images": []}

    right = lines(tmp_path / "right.jsonl", [result(row, HALF) for row in range(3)])
    assert [record["score"] for record in run(data, "ext_iou", completions=right)[1]] == [0.5, 0.5, None]
    swapped = lines(tmp_path / "swapped.jsonl", [result(row, HALF) for row in (1, 0, 2)])
    with pytest.raises(
        DatasetRowError, match=r"'<image>Where is the dog\?' for a row that asks .*swapped.jsonl:1"
    ):
        run(data, "ext_iou", completions=swapped)


def test_completions_of_a_run_find_their_rows(data):
    table = {
        "step": ["1"] * 3,
        "prompt": [
            f"<|im_start|>user\n<image>{text}<|im_end|>"
            for text in ("Where is the dog?",) * 2 + ("Where is the cat?",)
        ],
        "completion": ["x", "y", "z"],
        "ext_iou": [0.0] * 3,
        "solution": [BOX] * 3,
        "images": [["/data/b.png"]] * 2 + [["/data/a.png"]],
    }
    path = lines(data.with_name("completions.jsonl"), [table, table])  # the host writes the last one twice
    assert [(found.row, found.completion) for found in samples_of(ROWS_OF_THREE, path)] == [
        (2, "x"),
        (2, "y"),
        (1, "z"),
    ]
    with pytest.raises(DatasetRowError, match=r"no row has its question.*completions.jsonl:1, completion 0"):
        samples_of(ROWS_OF_THREE[:1], path)
    twins = [ROWS_OF_THREE[1], {**ROWS_OF_THREE[1], "frame": "norm1"}]
    with pytest.raises(DatasetRowError, match="rows 1, 2 differ elsewhere"):
        samples_of(twins, path)


def test_a_file_of_failed_completions_runs_again(run, tmp_path):
    path = tmp_path / "reward_failures.rank0.jsonl"
    failure = Failure("ext_count", "timeout", "no answer within 10 s", "completion 0 of the batch")
    replay.record(path, failure, "<answer>3</answer>", {"solution": 3, "images": [b"bytes"]})
    _, (record,) = run(path)
    assert (record["reward"], record["score"]) == ("ext_count", 1.0)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "no such file"),
        ("", "nothing in it"),
        ("\n\n", "nothing in it"),
        ("{}\n{", r"line is no JSON \[.*:2\]"),
        ("{}\n\n{}", r"line is no JSON \[.*:2\]"),
        ("[1]", "line is no JSON object"),
        ("[" * 100_000, "line is no JSON"),
        ("{}", "no completion .*row 1"),
        ('{"completion": 7}', "no completion"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_line(content, what, tmp_path):
    path = tmp_path / "data.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DatasetRowError, match=what):
        command.run(path, ["ext_iou"], plot=False)


def test_completions_that_do_not_fit_are_refused(data, run, tmp_path):
    few = lines(tmp_path / "few.jsonl", ["a", "b"])
    with pytest.raises(DatasetRowError, match="2 completions for 3 rows"):
        run(data, "ext_iou", completions=few)
    with pytest.raises(SettingsError, match="give one of the two"):
        run(data, "ext_iou", completions=few, gold=True)
    with pytest.raises(RewardError, match="did you mean 'ext_iou'"):
        run(data, "ext_iuo", gold=True)
    with pytest.raises(RewardError, match="ext_format compares with no gold"):
        run(data, "ext_format", gold=True)
    with pytest.raises(DatasetRowError, match="do not all name one reward"):
        run(data)


@pytest.mark.parametrize(
    "table",
    [
        {"completion": ["5", "6"], "prompt": ["q"]},
        {"prompt": ["q"]},
        "text",
    ],
)
def test_a_line_of_a_run_that_is_no_table_is_refused(table, data, tmp_path):
    whole = {"completion": ["5"], "prompt": [f"x {ROWS_OF_THREE[0]['messages'][0]['content'][7:]}"]}
    whole |= {"images": [["a.png"]]}
    path = lines(tmp_path / "completions.jsonl", [whole, table])
    with pytest.raises(DatasetRowError, match=r"line is no table of completions.*completions.jsonl:2"):
        samples_of(ROWS_OF_THREE, path)


def test_completions_may_be_messages(data, tmp_path):
    answers = lines(
        tmp_path / "answers.jsonl", [{"completion": [{"role": "assistant", "content": HALF}]}] * 3
    )
    assert [sample.completion for sample in samples_of(ROWS_OF_THREE, answers)] == [HALF] * 3


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"solution": 5}\n' + '{"solution": "文本"}\n'.encode("gbk"))
    with pytest.raises(DatasetRowError, match=r"not UTF-8 .*data.jsonl:2"):
        command.run(path, ["ext_ocr"], gold=True, plot=False)


def test_gold_of_no_row_is_not_well(run, tmp_path, capsys):
    data = lines(tmp_path / "data.jsonl", [{"task": "box", "solution": 3}])
    table = json.dumps({"rewards": {"ext_count": {"tasks": ["count"]}}})
    assert not run(data, "ext_count", gold=True, table=table)[0]
    assert "ext_count: the reward table gives it none of the rows" in capsys.readouterr().out


def test_without_matplotlib_the_extra_is_named(data, run, monkeypatch):
    monkeypatch.setattr(printed, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "swift-grpo-ext\[report\]"'):
        run(data, "ext_iou", gold=True, plot=True)


def test_a_reward_at_fault_fails_the_command(data, run, monkeypatch):
    from rewards.jobs import a_reward, broken
    from swift_grpo_ext.rewards.offline import scoring

    monkeypatch.setattr(scoring, "get_reward", lambda name: a_reward(broken))
    well, records = run(lines(data, [{"completion": "x"}]), "ext_test")
    assert not well
    assert records[0]["reason"] == "KeyError('x')"


def test_many_unscored_rows_are_counted_by_reason(run, tmp_path, capsys):
    run(lines(tmp_path / "data.jsonl", [{"completion": "3"}] * 25), "ext_count")
    out = capsys.readouterr().out
    assert out.count("\n  row ") == printed.NAMED
    assert "in all 25 x no gold in column solution or count or answer" in out
