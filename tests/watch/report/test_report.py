"""The report reads what the host left, says whether it learns, and shows it in one safe page."""

import base64
import hashlib
import json
import re

import pytest
from PIL import Image
from typer.testing import CliRunner

from swift_grpo_ext import testing
from swift_grpo_ext.cli import app
from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.report import Figure, Section, Tile, write_report
from swift_grpo_ext.watch.report.page_data import MOST_POINTS, rows_within
from swift_grpo_ext.watch.report.run import read_run
from tests.watch.report.made_up_run import HOSTILE, PROMPT, Tags, data_of, table, write_run


def test_a_real_run_becomes_a_report(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen, digits.train, tmp_path / "run", reward_funcs=["ext_choice", "ext_format"], max_steps=12
    )
    testing.run_in_process("rlhf", arguments)
    report = write_report(tmp_path / "run", tmp_path / "report")
    shown = data_of(report)
    (run,) = shown["runs"]
    assert {row["step"] for row in run["completions"]} == set(range(1, 13))
    assert "ext_choice" in run["completions"][0]
    assert all(None not in row["images"] for row in run["completions"])
    assert run["rewards"] == ["ext_choice", "ext_format"]
    assert run["figures"].keys() >= {"reward", "grad_norm", "loss", "learning_rate", "seconds/rollout"}
    assert len(run["figures"]["rewards/ext_choice/mean"]) == 12


def test_the_page_needs_nothing_else_and_runs_nothing(tmp_path):
    run = write_run(
        tmp_path / "run",
        [0.1] * 5,
        completions=[table(1, [HOSTILE] * 4, images=["/no/such.png", HOSTILE], prompt=PROMPT + HOSTILE)],
    )
    report = write_report(
        run,
        title=HOSTILE,
        extra_figures=[Figure(HOSTILE, "1", HOSTILE)],
        sections=[Section(HOSTILE, HOSTILE, (Tile(None, HOSTILE),))],
    )
    page = report.html.read_text(encoding="utf-8")
    tags = Tags(page)
    assert not {"iframe", "link", "object"} & {tag for tag, _ in tags.found}
    addresses = [attrs["src"] for tag, attrs in tags.found if tag == "img"]
    assert all(address.startswith("data:image/") for address in (*addresses, *tags.data["images"]))
    assert not [name for _, attrs in tags.found for name in attrs if name.startswith("on")]
    assert "49" not in re.findall(r"alert\(1\)&gt; (\S+)", page)
    # The data can close no tag, and of scripts the policy lets only ours run.
    data, script = tags.scripts
    assert not set("<>&") & set(data)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [attrs["content"] for _, attrs in tags.found if attrs.get("http-equiv")]
    assert f"script-src 'sha256-{allowed}'" in policy
    assert "default-src 'none'" in policy
    assert HOSTILE not in page.replace(data, "")


def test_the_text_of_completions_is_there_whole(tmp_path):
    run = write_run(tmp_path / "run", [0.1] * 5, completions=[table(1, ["a<b", "a<b", "数字 7", ""])])
    rows = data_of(write_report(run))["runs"][0]["completions"]
    assert [row["completion"] for row in rows] == ["a<b", "a<b", "数字 7", ""]
    assert rows[0]["ext_format"] is None, "a reward of None is no 0"


def test_a_run_without_completions_says_how_to_get_them(tmp_path):
    folder = write_run(tmp_path / "run", [0.5] * 5)
    (folder / "completions.jsonl").unlink()
    report = write_report(folder)
    assert "--log_completions true" in report.html.read_text(encoding="utf-8")


def test_the_command_prints_the_verdict_and_the_path(tmp_path):
    run = write_run(tmp_path / "run", [i / 50 for i in range(50)])
    result = CliRunner().invoke(app, ["report", str(run), "--to", str(tmp_path / "there")])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "It learns: the reward rose from 0.09 to 0.89.",
        str(tmp_path / "there" / "report.html"),
    ]


def test_runs_are_compared_in_one_page(tmp_path):
    folders = [write_run(tmp_path / name, [0.1] * 12) for name in ("one", "two")]
    for number, folder in enumerate(folders):
        (folder / "args.json").write_text(json.dumps({"learning_rate": number, "beta": 0.1}))
    report = write_report(folders, tmp_path / "both")
    shown = data_of(report)
    assert [run["name"] for run in shown["runs"]] == [f"{tmp_path.name}/one", f"{tmp_path.name}/two"]
    assert all(len(run["figures"]["reward"]) == 12 for run in shown["runs"])
    assert len(report.verdicts) == 2
    page = report.html.read_text(encoding="utf-8")
    assert page.count('class="differs"') == 1
    result = CliRunner().invoke(app, ["report", *map(str, folders), "--to", str(tmp_path / "there")])
    assert len(result.output.splitlines()) == 3


def test_a_long_run_is_shown_in_part_from_its_first_to_its_last_step(tmp_path):
    tables = [table(step, [f"{step}-{i}" for i in range(8)]) for step in range(1, 101)]
    run = read_run(write_run(tmp_path / "run", [0.5] * 100, completions=tables))
    assert [row["step"] for row in rows_within(run, 24)][::8] == [1, 51, 100]
    some = rows_within(run, 80)
    assert len(some) == 80
    assert (some[0]["step"], some[-1]["step"]) == (1, 100)
    assert rows_within(run, 800) == list(run.completions)
    assert len(rows_within(run, 1)) == 8, "a step is shown whole"


def test_an_image_is_in_the_page_once(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "same.png", "b.png")]
    for path, colour in zip(paths, ("red", "red", "blue"), strict=True):
        Image.new("RGB", (64, 48), colour).save(path)
    tables = [table(step, ["7"] * 4, images=[str(paths[(step - 1) % 3])]) for step in range(1, 31)]
    shown = data_of(write_report(write_run(tmp_path / "run", [0.5] * 30, completions=tables)))
    assert len(shown["images"]) == 2
    assert [row["images"] for row in shown["runs"][0]["completions"][:12:4]] == [[0], [0], [1]]


def test_long_curves_are_thinned(tmp_path):
    run = write_run(tmp_path / "run", [step / 4000 for step in range(4000)])
    points = data_of(write_report(run))["runs"][0]["figures"]["reward"]
    assert len(points) <= MOST_POINTS
    assert points[:2] == [[1, 0.0], [4, 0.00075]]


def test_half_of_a_surrogate_pair_is_no_end_of_the_report(tmp_path):
    """JSON can hold one, UTF-8 cannot: in text, in a prompt, as the name of a reward."""
    half = "a\ud800b"
    tables = [table(1, [half] * 4, prompt=PROMPT + half) | {half: [1.0] * 4, "solution": [half] * 4}]
    run = write_run(tmp_path / "run", [0.1] * 12, completions=tables, **{f"rewards/{half}/mean": 0.5})
    report = write_report(run, title=half)
    assert "a?b" in report.html.read_text(encoding="utf-8")
    assert data_of(report)["runs"][0]["completions"][0]["completion"] == "a?b"


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path):
    run = write_run(tmp_path / "run", [0.1] * 5)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFolderError, match=r"cannot be written.*--to"):
        write_report(run, tmp_path / "file")
