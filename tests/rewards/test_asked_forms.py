"""The form that a prompt asks for is the form that the reward reads."""

from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import NAMES, get_reward
from swift_grpo_ext.rewards.forms import FORMS, form_not_asked, system_text

SIZES = {"image_sizes": [{"original": [640, 480], "resized": [640, 480]}]}
GOLDS = {
    "ext_point_in_box": {"solution": [10, 20, 110, 220]},
    "ext_click": {"solution": {"action": "click", "bbox": [10, 20, 110, 220]}},
    "ext_iou": {"solution": [10, 20, 110, 220]},
    "ext_giou": {"solution": [10, 20, 110, 220]},
    "ext_temporal_iou": {"solution": [3.5, 12]},
    "ext_choice": {"solution": "B", "options": ["a cat", "a dog"]},
}
PAGE = (Path(__file__).parents[2] / "docs/parts/rewards.md").read_text(encoding="utf-8")


def test_every_reward_with_a_gold_has_a_form():
    assert set(FORMS) <= set(NAMES)
    assert [name for name in NAMES if get_reward(name).gold and name not in FORMS] == []


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_in_the_form_gets_the_maximum_and_earns_the_format(name):
    form = FORMS[name]
    row = {**SIZES, "solution": form.sample, **GOLDS.get(name, {})}
    completion = f"<think>\n-\n</think>\n{form.answer}"
    assert get_reward(name).outcome(completion, row).score == pytest.approx(get_reward(name).high)
    assert get_reward("ext_format")(completion) == 1.0


@pytest.mark.parametrize("name", FORMS)
def test_its_system_text_names_the_place_and_stands_on_the_page(name):
    assert form_not_asked(name, [system_text(name), "How many?"]) == ""
    assert form_not_asked(name, ["You are a helpful assistant.", "How many?"]) == FORMS[name].answer
    assert f"| `{name}` | {FORMS[name].words} |" in PAGE


@pytest.mark.parametrize(
    "text",
    [r"Put it in \boxed{}.", "Answer in JSON.", "End with 'Answer: X'.", "以「答案：X」结尾", "bbox_2d"],
)
def test_other_prompts_name_a_place_too(text):
    assert form_not_asked("ext_count:shaped=true", [text]) == ""


def test_what_needs_no_form_has_none():
    assert system_text("ext_repetition") == form_not_asked("ext_repetition", []) == ""
