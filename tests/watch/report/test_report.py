"""The report reads what the host left, says whether it learns, and shows it in one safe page."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest
from PIL import Image
from typer.testing import CliRunner

from swift_grpo_ext import testing
from swift_grpo_ext.cli import app
from swift_grpo_ext.errors import OutputFolderError
from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.report import Figure, Section, Tile, write_report
from swift_grpo_ext.watch.report.charts import Line, thinned
from swift_grpo_ext.watch.report.gallery import Row, distinct, groups_within, shown_groups
from swift_grpo_ext.watch.report.plots import running_mean
from swift_grpo_ext.watch.report.run import Series, read_run
from swift_grpo_ext.watch.report.samples_plot import _row, plain_prompt
from swift_grpo_ext.watch.report.verdict import judge, trend

PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|><image><|vision_end|>Which digit is this?<|im_end|>\n<|im_start|>assistant\n"
)
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)> {{ 7*7 }} $\\frac{1}{0}$ 数字 \u202e \x07'


def write_run(folder, rewards, *, grad_norm=1.0, completions=(), **figures):
    """A run's folder as the host leaves it, with the given reward at each step."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "loss": 0.0,
            "reward": reward,
            "reward_std": 0.4,
            "frac_reward_zero_std": 0.2,
            "grad_norm": grad_norm,
            "kl": 0.01,
            "completions/mean_length": 2.0,
            "completions/min_length": 1.0,
            "completions/max_length": 4.0,
            "step_time": 0.5,
            "rewards/ext_choice/mean": reward,
            "rewards/ext_format/mean": 1.0,
            "global_step/max_steps": f"{step}/{len(rewards)}",
            **figures,
        }
        for step, reward in enumerate(rewards, start=1)
    ]
    records.append({"train_runtime": 1.0, "global_step/max_steps": f"{len(rewards)}/{len(rewards)}"})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "logging.jsonl").write_text(lines, encoding="utf-8")
    tables = "".join(json.dumps(table) + "\n" for table in completions)
    (folder / "completions.jsonl").write_text(tables, encoding="utf-8")
    (folder / "args.json").write_text(json.dumps({"num_generations": 4, "model": "<b>model</b>"}))
    return folder


def table(step, texts, images=(), prompt=PROMPT):
    """A table of completions.jsonl: the first half of the texts is right."""
    right = [float(number < len(texts) // 2) for number in range(len(texts))]
    return {
        "step": [str(step)] * len(texts),
        "prompt": [prompt] * len(texts),
        "completion": list(texts),
        "ext_choice": right,
        "ext_format": [None] * len(texts),
        "advantages": [2 * value - 1 for value in right],
        "solution": ["7"] * len(texts),
        "images": [list(images)] * len(texts),
    }


def data_of(report):
    """What the page's script draws."""
    return Tags(report.html.read_text(encoding="utf-8")).data


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found, self.scripts = [], []
        self.feed(page)
        self.data = json.loads(self.scripts[0])

    def handle_data(self, text):
        if self.found and self.found[-1][0] == "script" and text.strip():
            self.scripts[-1] += text

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")


def test_a_real_run_becomes_a_report(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen, digits.train, tmp_path / "run", reward_funcs=["ext_choice", "ext_format"], max_steps=12
    )
    testing.run_in_process("rlhf", arguments)
    report = write_report(tmp_path / "run", tmp_path / "report")
    names = {path.name for path in report.plots}
    assert {"reward.png", "reward_std.png", "kl.png", "grad_norm.png", "lengths.png", "samples.png"} <= names
    for path in report.plots:
        with Image.open(path) as image:
            assert min(image.size) > 300
    shown = data_of(report)
    assert {group["step"] for group in shown["groups"]} == set(range(1, 13))
    assert "ext_choice" in shown["groups"][0]["rows"][0]["rewards"]
    assert all(None not in group["images"] for group in shown["groups"])
    titles = {chart["title"] for chart in shown["charts"]}
    assert {"ext_choice: mean ± standard deviation", "seconds of each step by phase"} <= titles


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
    (group,) = data_of(write_report(run))["groups"]
    counts = {}
    for row in group["rows"]:
        counts[row["text"]] = counts.get(row["text"], 0) + row["count"]
    assert counts == {"a<b": 2, "数字 7": 1, "": 1}
    assert group["rows"][0]["rewards"]["ext_format"] is None, "a reward of None is no 0"


@pytest.mark.parametrize(
    ("rewards", "figures", "level", "headline"),
    [
        ([i / 50 for i in range(50)], {}, "good", "It learns: the reward rose from 0.09 to 0.89"),
        ([1 - i / 50 for i in range(50)], {}, "bad", "It gets worse"),
        ([0.5 + 0.1 * math.sin(i) for i in range(50)], {}, "warn", "No clear change"),
        ([0.5, 0.6], {}, "warn", "Too early to tell"),
        ([0.5], {"grad_norm": 0.0, "watch/moved": 0.0, "watch/advantaged": 0.0}, "warn", "Too early to tell"),
        (
            [i / 50 for i in range(50)],
            {"grad_norm": 0.0},
            "bad",
            "Nothing is learned: no step had a gradient",
        ),
        ([i / 50 for i in range(50)], {"watch/moved": 0.0}, "bad", "Nothing is learned: no parameter moved"),
        ([i / 50 for i in range(50)], {"watch/moved": 0.0, "watch/master_moved": 0.5}, "good", "It learns"),
        (
            [0.5] * 50,
            {"watch/moved": 1.0, "watch/advantaged": 0.0},
            "bad",
            "Nothing is learned: no completion",
        ),
    ],
)
def test_verdict(tmp_path, rewards, figures, level, headline):
    verdict = judge(read_run(write_run(tmp_path / "run", rewards, **figures)))
    assert verdict.level == level
    assert verdict.headline.startswith(headline)


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"frac_reward_zero_std": 1.0}, "In 100% of the groups every completion earned the same"),
        ({"grad_norm": math.nan}, "Not finite in at least one step: grad_norm"),
        ({"completions/clipped_ratio": 0.9}, "90% of the completions were cut"),
        ({"reward_coverage": 0.5}, "Only 50% of the completions were scored"),
    ],
)
def test_reasons(tmp_path, figures, reason):
    run = read_run(write_run(tmp_path / "run", [i / 50 for i in range(50)], **figures))
    assert any(each.startswith(reason) for each in judge(run).reasons)
    assert write_report(run.folder).html.is_file()


def test_a_run_that_never_scored_anything(tmp_path):
    folder = write_run(tmp_path / "run", [0.0] * 12)
    lines = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    kept = [{name: line[name] for name in line if not name.startswith("reward")} for line in lines]
    (folder / "logging.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    assert judge(read_run(folder)).headline == "Nothing is learned: no completion was scored."
    assert "reward.png" not in {path.name for path in write_report(folder).plots}


def test_groups_are_the_completions_of_one_prompt(tmp_path):
    tables = [table(step, [f"{step}"] * 8) for step in range(1, 21)]
    run = read_run(write_run(tmp_path / "run", [0.5] * 20, completions=tables))
    assert len(run.groups) == 40
    assert {len(group.samples) for group in run.groups} == {4}
    shown = shown_groups(run, steps=5, per_step=1)
    assert [group.step for group in shown] == [1, 6, 11, 15, 20]


def test_a_shorter_group_ends_where_the_prompt_changes(tmp_path):
    tables = [table(1, ["a"] * 3), table(2, ["b"] * 4)]
    run = read_run(write_run(tmp_path / "run", [0.5] * 2, completions=tables))
    assert [(group.step, len(group.samples)) for group in run.groups] == [(1, 3), (2, 4)]


def test_equal_completions_are_one_row(tmp_path):
    run = read_run(write_run(tmp_path / "run", [0.5], completions=[table(1, ["7", "7", "1", "7"])]))
    rows = distinct(run.groups[0].samples)
    assert [(row.text, row.count, row.advantage) for row in rows] == [
        ("7", 2, 1.0),
        ("1", 1, -1.0),
        ("7", 1, -1.0),
    ]


def test_a_run_without_completions_says_how_to_get_them(tmp_path):
    folder = write_run(tmp_path / "run", [0.5] * 5)
    (folder / "completions.jsonl").unlink()
    report = write_report(folder)
    assert "--log_completions true" in report.html.read_text(encoding="utf-8")
    assert "samples.png" not in {path.name for path in report.plots}


def test_a_folder_without_a_step_is_refused(tmp_path):
    (tmp_path / "logging.jsonl").write_text('{"train_runtime": 1}\n')
    with pytest.raises(OutputFolderError, match="no GRPO step has been logged"):
        read_run(tmp_path)


def test_trend_needs_enough_steps_and_forgets_nan(tmp_path):
    series = read_run(write_run(tmp_path / "run", [0.5] * 9 + [math.nan] * 5)).series("reward")
    assert len(series.values) == 14
    assert trend(series) is None


def test_running_mean_starts_at_the_first_value():
    assert running_mean([3.0, 3.0, 3.0]) == pytest.approx([3.0, 3.0, 3.0])
    assert running_mean([0.0, 1.0])[1] == pytest.approx(1 / 1.9)


def test_a_row_of_the_plot_shows_the_start_of_a_long_word_and_no_nan():
    row = Row("x" * 90, 2, (("a", 0.5), ("b", math.nan), ("c", None)), 1.0)
    assert _row(row) == f"2 x {'x' * 19}… r 0.5  A +1.00"


def test_plain_prompt_is_the_last_user_turn():
    assert plain_prompt(PROMPT) == "<image> Which digit is this?"


def test_the_command_prints_the_verdict_and_the_path(tmp_path):
    run = write_run(tmp_path / "run", [i / 50 for i in range(50)])
    result = CliRunner().invoke(app, ["report", str(run), "--to", str(tmp_path / "there")])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "It learns: the reward rose from 0.09 to 0.89.",
        str(tmp_path / "there" / "report.html"),
    ]


def test_what_the_monitors_wrote_down_is_among_the_reasons(tmp_path):
    folder = write_run(tmp_path / "run", [0.1] * 12)
    journal = Journal(read_run(folder).folder, rank=0)
    journal.add("verdict", step=3, id="clipped", level="warn", text="95 % are <b>cut off</b>")
    journal.add("stall", step=4, text="phase reward has lasted 300 s")
    _, *reasons = judge(read_run(folder)).reasons
    assert reasons[0] == "Monitor [clipped] at step 3: 95 % are <b>cut off</b>"
    assert reasons[1] == "Monitor [stall] at step 4: phase reward has lasted 300 s"


def test_runs_are_compared_in_one_page(tmp_path):
    folders = [write_run(tmp_path / name, [0.1] * 12) for name in ("one", "two")]
    for number, folder in enumerate(folders):
        (folder / "args.json").write_text(json.dumps({"learning_rate": number, "beta": 0.1}))
    report = write_report(folders, tmp_path / "both")
    shown = data_of(report)
    assert shown["runs"] == ["one", "two"]
    (reward,) = [chart for chart in shown["charts"] if chart["title"] == "reward"]
    assert [line["run"] for line in reward["lines"]] == [0, 1]
    assert len(report.verdicts) == 2
    page = report.html.read_text(encoding="utf-8")
    assert page.count('class="differs"') == 1
    result = CliRunner().invoke(app, ["report", *map(str, folders), "--to", str(tmp_path / "there")])
    assert len(result.output.splitlines()) == 3


def test_a_long_run_is_shown_in_part_from_its_first_to_its_last_step(tmp_path):
    tables = [table(step, [f"{step}-{i}" for i in range(8)]) for step in range(1, 101)]
    run = read_run(write_run(tmp_path / "run", [0.5] * 100, completions=tables))
    some = groups_within(run, 80)
    assert sum(len(group.samples) for group in some) == 80
    assert (some[0].step, some[-1].step) == (1, 100)
    assert groups_within(run, 800) == list(run.groups)
    assert len(groups_within(run, 1)) == 1


def test_an_image_is_in_the_page_once(tmp_path):
    paths = [tmp_path / name for name in ("a.png", "same.png", "b.png")]
    for path, colour in zip(paths, ("red", "red", "blue"), strict=True):
        Image.new("RGB", (64, 48), colour).save(path)
    tables = [table(step, ["7"] * 4, images=[str(paths[(step - 1) % 3])]) for step in range(1, 31)]
    shown = data_of(write_report(write_run(tmp_path / "run", [0.5] * 30, completions=tables)))
    assert len(shown["images"]) == 2
    assert [group["images"] for group in shown["groups"][:3]] == [[0], [0], [1]]


def test_long_curves_are_thinned_to_means():
    line = Line("", 0, Series(tuple(range(1, 10_001)), tuple(float(i) for i in range(1, 10_001))))
    thin = thinned(line, most=1000)
    assert thin.series.steps[:2] == (10, 20)
    assert thin.series.values[:2] == (5.5, 15.5)
    assert thinned(line, most=10_000) is line


def test_regions_that_are_none_are_passed_over(tmp_path):
    places = [
        {"at": [0, 0, 0.5, 1]},
        {"at": "x"},
        {"at": [1]},
        {"at": [0.5, math.nan]},
        7,
        {"label": "no place"},
    ]
    regions = [{"image": 0, "gold": places, "predicted": "all"}, None, 3, {}]
    tables = [table(1, ["7"] * 4) | {"regions": regions}]
    run = read_run(write_run(tmp_path / "run", [0.5] * 4, completions=tables))
    assert [region.at for region in run.groups[0].gold] == [(0, 0, 0.5, 1)]
    assert run.groups[0].samples[0].regions == ()
    assert "regions" not in run.groups[0].samples[0].rewards


def test_text_that_ends_lines_elsewhere_ends_none_here(tmp_path):
    """The host writes U+2028, U+2029 and U+0085 as they are; for `str.splitlines` they are ends of lines."""
    text = "one\u2028two\u2029three\x85four"
    folder = write_run(tmp_path / "run", [0.1] * 5)
    line = json.dumps(table(1, [text] * 4), ensure_ascii=False) + "\n"
    (folder / "completions.jsonl").write_text(line + json.dumps(table(2, ["7"] * 4)) + "\n", "utf-8")
    Journal(folder, rank=0).add("stall", step=1, text=text)
    run = read_run(folder)
    assert [group.samples[0].text for group in run.groups] == [text, "7"]
    assert f"Monitor [stall] at step 1: {text}" in judge(run).reasons


def test_a_file_that_is_written_to_at_this_moment_is_read(tmp_path):
    folder = write_run(tmp_path / "run", [0.1] * 5)
    whole = json.dumps(table(1, ["数字"] * 4), ensure_ascii=False).encode()
    (folder / "completions.jsonl").write_bytes(whole + b"\n" + whole[: whole.index("数".encode()) + 1])
    (folder / "args.json").write_text('{"num_generations": 4, "mod')
    run = read_run(folder)
    assert len(run.groups) == 1
    assert run.arguments == {}
    assert run.damaged == ()


def test_a_damaged_line_is_left_out_and_told(tmp_path):
    folder = write_run(tmp_path / "run", [0.1] * 12)
    lines = (folder / "logging.jsonl").read_text().splitlines(keepends=True)
    lines[3] = lines[3][:40] + lines[4]  # killed while it wrote, then resumed into the same file
    (folder / "logging.jsonl").write_text("".join(lines))
    run = read_run(folder)
    assert [record["step"] for record in run.records] == [1, 2, 3, *range(5, 13)]
    assert f"1 damaged line was left out, the first: {folder}/logging.jsonl:4." in judge(run).reasons


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
    assert list(run.series("reward")) == [(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.9), (5, 0.9), (6, 0.9)]
    shown = [(group.step, group.samples[0].text) for group in run.groups]
    assert shown == [(1, "old")] * 2 + [(4, "new")] * 2 + [(6, "new")] * 2


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
    report = write_report(folder)
    assert sum(row["count"] for group in data_of(report)["groups"] for row in group["rows"]) == 4


def test_a_rollout_of_several_steps_is_shown_once(tmp_path):
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
    assert [group.step for group in run.groups] == [1, 1, 3, 3, 5, 5]
    assert run.series("reward").steps == (1, 3, 5)
    assert run.series("grad_norm").steps == (1, 2, 3, 4, 5, 6)


def test_half_of_a_surrogate_pair_is_no_end_of_the_report(tmp_path):
    """JSON can hold one, UTF-8 cannot: in text, in a prompt, as the name of a reward."""
    half = "a\ud800b"
    tables = [table(1, [half] * 4, prompt=PROMPT + half) | {half: [1.0] * 4, "solution": [half] * 4}]
    run = write_run(tmp_path / "run", [0.1] * 12, completions=tables, **{f"rewards/{half}/mean": 0.5})
    report = write_report(run, title=half)
    assert "a?b" in report.html.read_text(encoding="utf-8")
    (group,) = data_of(report)["groups"]
    assert group["rows"][0]["text"] == "a?b"


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path):
    run = write_run(tmp_path / "run", [0.1] * 5)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFolderError, match=r"cannot be written.*--to"):
        write_report(run, tmp_path / "file")
