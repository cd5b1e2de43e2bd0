"""One sentence, every reward: who does not assert a value is paid for it by none."""

import json
from pathlib import Path

import pytest

from swift_grpo_ext.rewards.catalogue import get_reward

SENTENCES = [
    json.loads(line)
    for line in Path(__file__).with_name("sentences.jsonl").read_text(encoding="utf-8").splitlines()
]
OPTIONS = ["dog", "cat", "cow", "hen"]
# The right answer of each reward as it stands in a sentence, and its row.
ANSWERS = {
    "ext_count": ("5", {"solution": 5, "question": "How many cups are there?"}),
    "ext_choice": ("B", {"solution": "B", "options": OPTIONS, "question": "What is it?"}),
    "ext_yes_no": ("yes", {"solution": "yes", "question": "Is the door open?"}),
    "ext_numeric": ("48", {"solution": "48", "question": "What was the revenue in 2019?"}),
    "ext_math": (r"$\sqrt{13}$", {"solution": r"\sqrt{13}"}),
    "ext_answer": ("Toyota", {"solution": "Toyota", "question": "What brand is it?"}),
    "ext_iou": ("[100, 150, 300, 400]", {"solution": [100, 150, 300, 400]}),
    "ext_point_in_box": ("(150, 150)", {"solution": [100, 100, 200, 200]}),
    "ext_temporal_iou": ("from 12 s to 20 s", {"solution": [12, 20]}),
    "ext_click": ("click(260, 530)", {"solution": {"action": "click", "bbox": [200, 500, 320, 560]}}),
}
# Nobody says "it is yes"; and text must be the whole answer, or end a short sentence.
UNSAID = {"ext_yes_no", "ext_answer"}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_not_asserted_is_not_paid(name):
    answer, row = ANSWERS[name]
    completions = [case["sentence"].format(v=answer) for case in SENTENCES if not case["asserts"]]
    assert len(completions) >= 100
    reward = get_reward(name)
    assert [text for text in completions if reward(text, row)] == []


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in UNSAID])
def test_what_is_asserted_is_paid(name):
    answer, row = ANSWERS[name]
    completions = [case["sentence"].format(v=answer) for case in SENTENCES if case["asserts"]]
    assert len(completions) >= 50
    reward = get_reward(name)
    assert [text for text in completions if reward(text, row) != 1.0] == []
