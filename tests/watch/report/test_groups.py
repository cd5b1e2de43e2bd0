"""How the page makes groups of the completions that a run logged, whatever state they are in."""

import json
import math

import pytest

from swift_grpo_ext.watch.report import write_report
from tests.watch.report.made_up_run import table, write_run
from tests.watch.report.test_browser import browser  # noqa: F401


@pytest.fixture
def groups(browser, tmp_path):  # noqa: F811
    """The groups of a run with these tables of completions, and no complaint of the page."""

    def read(*tables, **arguments):
        steps = max(int(table["step"][0]) for table in tables)
        folder = write_run(tmp_path / "run", [0.5] * steps, completions=tables)
        (folder / "args.json").write_text(json.dumps({"num_generations": 4, **arguments}))
        page = browser.open(write_report(folder).html.as_uri())
        assert page.complaints() == []
        return page.run("data.groups")

    return read


def test_groups_are_the_completions_of_one_prompt(groups):
    made = groups(*(table(step, [f"{step}"] * 8) for step in range(1, 21)))
    assert len(made) == 40
    assert {len(group["samples"]) for group in made} == {4}


def test_a_shorter_group_ends_where_the_prompt_changes(groups):
    made = groups(table(1, ["a"] * 3), table(2, ["b"] * 4))
    assert [(group["step"], len(group["samples"])) for group in made] == [(1, 3), (2, 4)]


def test_regions_that_are_none_are_passed_over(groups):
    places = [
        {"at": [0, 0, 0.5, 1]},
        {"at": "x"},
        {"at": [1]},
        {"at": [0.5, math.nan]},
        7,
        {"label": "no place"},
    ]
    regions = [{"image": 0, "gold": places, "predicted": "all"}, None, 3, {}]
    (group,) = groups(table(1, ["7"] * 4) | {"regions": regions})
    assert group["gold"] == [{"at": [0, 0, 0.5, 1], "label": ""}]
    assert group["samples"][0]["regions"] == []
    assert list(group["samples"][0]["rewards"]) == ["ext_choice", "ext_format"]


def test_columns_of_other_kinds_than_expected_break_nothing(groups):
    odd = table(1, ["7"] * 4) | {
        "advantages": ["high", None, math.nan, True],
        "images": ["a.png", None, 5, ["b.png"]],
        "regions": [{"image": "first"}, {"image": None}, 3, []],
        "prompt": [["list"], None, 4, "text"],
        "read": ["x", None, 3, []],
        "reason": [{"ext_choice": 4}, {"a": {}}, None, True],
    }
    made = groups(odd)
    assert sum(len(group["samples"]) for group in made) == 4
    assert {sample["advantage"] for group in made for sample in group["samples"]} == {None}


def test_a_rollout_of_several_steps_is_shown_once(groups):
    """``--num_iterations 2``: ms-swift logs its completions with both steps."""
    tables = [table(step, [f"{(step + 1) // 2}"] * 8) | {"entropy": [0.1 * step] * 8} for step in range(1, 7)]
    assert [group["step"] for group in groups(*tables, num_iterations=2)] == [1, 1, 3, 3, 5, 5]


def test_what_was_read_and_why_it_scored_less_stand_beside_a_completion(groups):
    read = {"read": [{"ext_choice": "7"}] * 4}
    read |= {"reason": [{"ext_choice": "gold: 8", "ext_format": "unread: no tag"}] * 4}
    own = {"question": ["Which digit?"] * 4, "gold": ["8"] * 4}
    (group,) = groups(table(1, ["7"] * 4) | read | own)
    assert group["samples"][0]["read"] == ["ext_choice: read 7; gold: 8", "ext_format: unread: no tag"]
    assert list(group["samples"][0]["rewards"]) == ["ext_choice", "ext_format"]
    assert (group["question"], group["solution"]) == ("Which digit?", "8")
