"""Turns of a trajectory are compared: runs of three turns with images of tools."""

import pytest
from PIL import Image
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from tests.trainer.crops import Crops
from tests.trainer.test_engine_check import FIRST, run


class Drawing(Crops):
    """Draws on the picture that the turn before saw, and shows it again."""

    def step(self, infer_request, response_choice, current_turn):
        if current_turn == 1:
            with Image.open(infer_request.images[0]) as picture:
                canvas = picture.convert("RGB")
        else:
            canvas = infer_request.images[-1]
            canvas.paste((255, 0, 0), (0, 0, 20, 20))
        infer_request.images = [*infer_request.images, canvas]
        infer_request.messages.append({"role": "user", "content": "<image>And now?"})
        return {"infer_request": infer_request, "rollout_infos": {"images": list(infer_request.images)}}


@pytest.fixture
def trained(tiny_qwen, digits, tmp_path, monkeypatch):
    """`trained(fault)`: verdicts of a run of three turns with an image each."""

    def trained(fault="", scheduler=Crops, **overrides):
        monkeypatch.setitem(multi_turns, "crops", scheduler)
        turns = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024, "temperature": 0.9}
        return run(tiny_qwen, digits, tmp_path / "run", monkeypatch, fault, **{**turns, **overrides})

    return trained


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param("temperature", "of turn 1 of row (", marks=pytest.mark.slow),
        pytest.param(
            "another question", "got another prompt than the trainer: token", marks=pytest.mark.slow
        ),
        pytest.param("image lost", "got another prompt than the trainer: token", marks=pytest.mark.slow),
        pytest.param("image added", "got another prompt than the trainer: token", marks=pytest.mark.slow),
        pytest.param(
            "ids mixed", "[1, 4, 4] tokens in the engine and [4, 4, 4] in the trainer", marks=pytest.mark.slow
        ),
        pytest.param("temperature@2", "of turn 2 of row (", marks=pytest.mark.slow),
        ("another question@2", "of turn 2 of row ("),
        pytest.param("image lost@2", "of turn 2 of row (", marks=pytest.mark.slow),
        ("system@2", "of turn 2 of row ("),
    ],
)
def test_a_fault_of_a_later_turn_is_found(fault, words, trained):
    verdicts = trained(fault, **FIRST)
    assert verdicts, "nothing was said"
    assert words in verdicts[0]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"torch_dtype": "bfloat16", "bf16": True}])
def test_healthy_turns_with_images_are_compared_and_silent(overrides, trained, tmp_path, monkeypatch):
    modes = []
    ask = GRPOTrainer._engine_infer

    def noted(trainer, *args, **kwargs):
        modes.append(trainer.model.training)
        return ask(trainer, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_engine_infer", noted)
    assert trained(max_steps=3, learning_rate=1e-2, **overrides) == []
    assert all(modes), "a later turn is taken for an evaluation"
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert all("watch/engine_ratio" in step for step in steps), "nothing was compared"
    assert [step["num_turns"] for step in steps] == [3, 3, 3]


def test_an_image_that_is_changed_in_place_is_found(trained):
    (verdict,) = trained(scheduler=Drawing, **FIRST)
    assert " of turn 2 of row (" in verdict["text"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"torch_dtype": "bfloat16", "bf16": True}])
def test_two_hundred_healthy_steps_of_three_turns_are_silent(overrides, trained, tmp_path):
    assert trained(max_steps=200, learning_rate=1e-4, **overrides) == []
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert len(steps) == 200
    assert steps[-1]["num_turns"] == 3
