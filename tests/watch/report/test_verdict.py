"""Does it learn: the headline of a run and its reasons."""

import json
import math

import pytest

from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.report import write_report
from swift_grpo_ext.watch.report.run import LoggedRun, read_run
from swift_grpo_ext.watch.report.verdict import judge, trend
from tests.watch.report.made_up_run import data_of, write_run


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
            "Nothing is learned: the gradient was 0 for 50 steps",
        ),
        (
            [i / 50 for i in range(50)],
            {"watch/moved": 0.0},
            "bad",
            "Nothing is learned: parameters did not move for 50 steps",
        ),
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
    said = verdict.headline.partition(": ")[2]
    assert not any(said in reason for reason in verdict.reasons), "each sentence once"
    assert verdict.headline.startswith(headline)


def test_the_headline_of_a_run_that_learned_nothing_names_flag_and_reward(tmp_path):
    dead = {"watch/moved": 0.0, "learning_rate": 0.0}
    folder = write_run(tmp_path / "still", [0.5] * 12, **dead)
    arguments = json.loads((folder / "args.json").read_text())
    (folder / "args.json").write_text(json.dumps({**arguments, "learning_rate": 0.0}))
    assert "the learning rate is 0: give another --learning_rate" in judge(read_run(folder)).headline
    flat = {"watch/moved": 1.0, "watch/advantaged": 0.0, "rewards/ext_choice/std": 0.0}
    headline = judge(read_run(write_run(tmp_path / "flat", [0.5] * 12, **flat))).headline
    assert headline.endswith(
        "every reward in every group is equal; reward ext_choice returned 0.5 for 100 %."
    )


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"frac_reward_zero_std": 1.0}, "in 100 % of the groups every completion got the same reward"),
        ({"grad_norm": math.nan}, "Not finite in at least one step: grad_norm"),
        ({"completions/clipped_ratio": 0.9}, "90 % of the completions are cut off"),
        ({"reward_coverage": 0.5}, "reward of this run scored only 50 % of the completions"),
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
    assert judge(read_run(folder)).headline.startswith("Nothing is learned: no completion was scored for 12")
    assert "reward" not in data_of(write_report(folder))["runs"][0]["figures"]


def test_trend_needs_enough_steps_and_forgets_nan(tmp_path):
    series = read_run(write_run(tmp_path / "run", [0.5] * 9 + [math.nan] * 5)).series("reward")
    assert len(series) == 14
    assert trend(series) is None


def test_what_the_monitors_wrote_down_is_among_the_reasons(tmp_path):
    folder = write_run(tmp_path / "run", [0.1] * 12)
    journal = Journal(read_run(folder).folder, rank=0)
    journal.add("verdict", step=3, id="clipped", level="warn", text="95 % are <b>cut off</b>")
    journal.add("stall", step=4, text="phase reward has lasted 300 s")
    _, *reasons = judge(read_run(folder)).reasons
    assert reasons[0] == "Monitor [clipped] at step 3: 95 % are <b>cut off</b>"
    assert reasons[1] == "Monitor [stall] at step 4: phase reward has lasted 300 s"


def test_nothing_is_said_twice(tmp_path):
    """What a monitor found is not found again in the figures; the bill has its picture."""
    folder = write_run(tmp_path / "run", [0.1] * 12, **{"completions/clipped_ratio": 0.9})
    assert any("cut off at the length limit" in reason for reason in judge(read_run(folder)).reasons)
    journal = Journal(folder, rank=0)
    journal.add("verdict", step=3, id="cut-off", level="warning", text="90 % are cut off")
    journal.add("bill", step=5, steps=5, seconds={"rollout": 3.0}, work={})
    reasons = judge(read_run(folder)).reasons
    assert len([reason for reason in reasons if "cut" in reason]) == 1
    assert not any("a step" in reason for reason in reasons)


def with_each(folder, **rewards):
    """A run of as many steps as each reward has means, which it logs one by one."""
    steps = len(next(iter(rewards.values())))
    write_run(folder, [sum(each) for each in zip(*rewards.values(), strict=True)])
    lines = [json.loads(line) for line in (folder / "logging.jsonl").read_text().splitlines()]
    for step in range(steps):
        for name in ("ext_choice", "ext_format"):
            lines[step].pop(f"rewards/{name}/mean")
        lines[step] |= {f"rewards/{name}/mean": means[step] for name, means in rewards.items()}
    (folder / "logging.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(folder)


def test_a_reward_that_stands_still_beside_one_that_learns_is_named(tmp_path):
    rising = [step / 50 for step in range(50)]
    verdict = judge(with_each(tmp_path / "run", ext_count=rising, ext_iou=[0.2] * 50, ext_format=[1.0] * 50))
    assert verdict.level == "warn"
    assert verdict.headline.startswith("It learns in part: the reward rose from")
    assert verdict.headline.endswith("; ext_iou stands still at 0.2.")


def test_a_rise_that_is_clear_and_small_is_none(tmp_path):
    rewards = [0.471 + 0.0001 * step for step in range(50)]
    assert judge(read_run(write_run(tmp_path / "run", rewards))).headline.startswith("No clear change")


def test_a_long_run_is_judged_in_time_by_its_steps(tmp_path, monkeypatch):
    """All steps were looked through at each step, 50 s of processor time for 4,000."""
    asked = []
    names = LoggedRun.reward_names.func
    monkeypatch.setattr(LoggedRun.reward_names, "func", lambda run: asked.append(1) or names(run))
    run = read_run(write_run(tmp_path / "run", [step / 100 for step in range(100)]))
    judge(run)
    assert len(asked) < 10
