"""The parts of the quickstart that can be looked at without running it."""

import io
from pathlib import Path

import pytest
from PIL import Image

from examples.quickstart.evaluation import accuracy, greedy_answers, spread
from examples.quickstart.progress import Progress
from examples.quickstart.setting import SETTINGS, SIZES, default_output
from swift_grpo_ext import testing


def test_progress_prints_about_twenty_lines_and_keeps_all(capsys):
    log = io.StringIO()
    progress = Progress(log, ("reward", "kl"))
    progress("swift-grpo-ext 0.1.0 on ms-swift 4.6.0 | trainer: grpo")
    for step in range(1, 301):
        progress(f"{{'reward': 0.25, 'loss': 1e-05, 'global_step/max_steps': '{step}/300'}}")
    printed = capsys.readouterr().out.splitlines()
    assert 20 <= len(printed) <= 24
    assert "reward 0.250" in printed[-1]
    assert "kl" not in printed[-1]
    assert "step  300 of 300" in printed[-1]
    assert len(log.getvalue().splitlines()) == 301


def test_progress_prints_held_out_rewards_and_the_best_checkpoint(capsys):
    progress = Progress(io.StringIO(), ("reward",))
    progress("[INFO:swift] swift-grpo-ext [held-out] 9 of 9 validation rows (seed 42), answered greedily")
    progress("[INFO:swift] swift-grpo-ext [held-out] step 50: reward 0.5 (0.4 to 0.6), the best so far, 2 s")
    progress("[INFO:swift] swift-grpo-ext [held-out] best checkpoint: out/checkpoint-50 (step 50)")
    _, *printed = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in printed] == [
        "swift-grpo-ext [held-out] step 50: reward 0.5 (0.4 to 0.6), the best so far, 2 s",
        "swift-grpo-ext [held-out] best checkpoint: out/checkpoint-50 (step 50)",
    ]


@pytest.mark.parametrize("family", SETTINGS)
def test_greedy_answers_of_a_random_model(family, tmp_path):
    model = testing.tiny_checkpoint(family, tmp_path / "model", seed=1, **SIZES)
    digits = testing.digits_dataset(tmp_path / "digits", limit=16)
    rows = testing.read_jsonl(digits.test)
    answers = greedy_answers(model, rows)
    assert len(answers) == len(rows)
    assert answers == greedy_answers(model, rows)
    assert 0 <= accuracy(answers, rows) <= 100


def test_every_model_has_an_output_folder_of_its_own():
    assert default_output("qwen2_5_vl") == Path("output/quickstart")
    assert len({default_output(model) for model in SETTINGS}) == len(SETTINGS)


def test_accuracy_wants_the_digit_and_nothing_else():
    rows = [{"solution": "7"}, {"solution": "7"}, {"solution": "1"}, {"solution": "0"}]
    assert accuracy(["7", "77", "one", ""], rows) == 25


def test_the_question_stands_after_the_image(tmp_path):
    digits = testing.digits_dataset(tmp_path, limit=8, side=28)
    row = testing.read_jsonl(digits.train)[0]
    assert row["messages"][0]["content"].startswith("<image>")
    assert row["solution"] in row["options"]
    assert Image.open(row["images"][0]).size == (28, 28)


def test_a_range_over_seeds_is_one_line():
    line = spread([(50.0, 80.0), (60.0, 77.5)])
    assert line.endswith("warm start 50.0 to 60.0 %  ->  GRPO 77.5 to 80.0 %  (17.5 to 30.0 points gained)")
