"""The agent of two turns: its sheets, its tool, and that it learns."""

import base64
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops
from swift.infer_engine.protocol import ChatCompletionResponseChoice, ChatMessage, RolloutInferRequest

from examples.agent.scheduler import CORNERS, LOOK, NOWHERE, Corners
from examples.agent.sheets import SIDE, sheets_dataset
from swift_grpo_ext import testing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sheets(tmp_path_factory):
    return sheets_dataset(tmp_path_factory.mktemp("sheets"), train=6, test=2)


def answered(row, text):
    """What the tool answers to a first turn."""
    request = RolloutInferRequest(
        [*row["messages"], {"role": "assistant", "content": text}],
        images=row["images"],
        data_dict={"sheet": row["sheet"]},
    )
    choice = ChatCompletionResponseChoice(0, ChatMessage("assistant", text), "stop", None, [7, 8])
    return Corners().step(request, choice, 1)


@pytest.mark.parametrize("corner", CORNERS)
def test_a_named_corner_is_shown_in_full_size(corner, sheets):
    row = testing.read_jsonl(sheets.questions.train)[0]
    turn = answered(row, f"{corner}\n")
    assert turn["infer_request"].messages[-1] == {"role": "user", "content": LOOK}
    assert turn["response_token_ids"] == [7, 8]
    shown, crop = turn["rollout_infos"]["images"]
    assert shown == row["images"][0]
    place = CORNERS.index(corner)
    left, top = place % 2 * SIDE, place // 2 * SIDE
    expected = Image.open(row["sheet"]).crop((left, top, left + SIDE, top + SIDE))
    assert ImageChops.difference(Image.open(io.BytesIO(base64.b64decode(crop))), expected).getbbox() is None


@pytest.mark.parametrize("text", ["E", "", "AB", "the upper left"])
def test_a_corner_that_is_none_shows_nothing(text, sheets):
    row = testing.read_jsonl(sheets.questions.test)[0]
    turn = answered(row, text)
    assert turn["infer_request"].messages[-1]["content"] == NOWHERE
    assert turn["rollout_infos"]["images"] == row["images"]


def test_dialogues_say_what_questions_ask(sheets):
    dialogues = testing.read_jsonl(sheets.dialogues)
    questions = testing.read_jsonl(sheets.questions.train)
    assert len(dialogues) == len(questions) == 6
    for dialogue, question in zip(dialogues, questions, strict=True):
        assert question["messages"] == dialogue["messages"][:1]
        assert [message["role"] for message in dialogue["messages"]] == ["user", "assistant"] * 2
        assert dialogue["messages"][-1]["content"] == question["solution"]
        assert (
            answered(question, dialogue["messages"][1]["content"])["rollout_infos"]["images"]
            == dialogue["images"]
        )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_learns(tmp_path):
    words = [sys.executable, "-m", "examples.agent", "--output", str(tmp_path)]
    printed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    rewards = [float(figure) for figure in re.findall(r"held-out\] step \d+: reward ([\d.]+)", printed)]
    assert len(rewards) == 5
    assert rewards[-1] > rewards[0] + 0.1
