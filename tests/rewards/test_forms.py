"""Forms in which models and datasets write answers, and gold that is broken: each was once read wrongly."""

import datetime

import numpy as np
import pytest

from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.gold.columns import gold_completion

ANIMALS = ["a cat", "a dog", "a horse", "a cow"]
SIZES = [{"original": [640, 480], "resized": [644, 476]}]


@pytest.mark.parametrize(
    ("reward", "gold", "answer", "score"),
    [
        ("ext_choice", "B", "B。", 1),
        ("ext_choice", "A", "The answer is A or B", 0),
        ("ext_choice", "A", "Answer: A B C D", 0),
        ("ext_choice", "B", "A. a cat\nB. a dog", 0),
        ("ext_choice", ["A", "C"], "The answer is A and C", 1),
        ("ext_choice", ["A", "C"], "A和C", 1),
        ("ext_yes_no", "yes", "The answer is yes", 1),
        ("ext_yes_no", "yes", "Answer: **Yes**", 1),
        ("ext_yes_no", "no", "答案：不是", 1),
        ("ext_yes_no", "0", "No", 1),
        ("ext_yes_no", "yes", "The answer is yes or no", 0),
        ("ext_numeric", "0.5", r"\frac12", 1),
        ("ext_numeric", "5 m^2", "50000 cm²", 1),
        ("ext_numeric", "5 m^2", "5 m", 0),
        ("ext_numeric", "1 m^3", "1000 l", 1),
        ("ext_numeric", 10**40, "1" + "0" * 40, 1),
        ("ext_numeric", 10**40, "1", 0),
        ("ext_count", "3.0", "3.0", 1),
        ("ext_iou", [10, 20, 110, 220], "<box>10, 20, 110, 220</box>", 1),
        ("ext_click", {"action": "click", "coordinate": [1, 2]}, "click(point='<point>1 2</point>')", 1),
        ("ext_click", "click(start_box='(1,2)')", "click(1, 2)", 1),
        ("ext_click", {"action": "scroll", "direction": "up"}, "scroll(down)", 0),
        ("ext_click", "scroll(point='(1,2)', direction='up')", "scroll(point='(1,2)', direction='down')", 0),
        ("ext_click", {"action": "type", "text": "hello world"}, "type(hello world)", 1),
        ("ext_click", {"action": "key", "text": "ctrl c"}, "hotkey('ctrl', 'c')", 1),
        ("ext_ocr", "a\n```\nb\n```\nc", "a\n```\nb\n```\nc", 1),
        ("ext_table", "| <term> | a\\|b |", "| <term> | a\\|b |", 1),
        ("ext_table", "<table><tr><td>a|b</td></tr></table>", "| a\\|b |", 1),
        ("ext_anls", ["a", None], "None", 0),
    ],
)
def test_an_answer_is_read_as_it_is_meant(reward, gold, answer, score):
    row = {"solution": gold, "image_sizes": SIZES}
    row |= {"options": ANIMALS} if reward == "ext_choice" else {}
    row |= {"relative_tolerance": 0.0} if reward == "ext_numeric" else {}
    found = get_reward(reward)
    assert found(f"<think>x</think><answer>{answer}</answer>", row) == pytest.approx(score)
    assert found(gold_completion(found, row), row) == found.high


@pytest.mark.parametrize(
    ("reward", "row"),
    [
        ("ext_anls", {"solution": {"a": 1}}),
        ("ext_anls", {"solution": [None]}),
        ("ext_answer", {"solution": [""]}),
        ("ext_text_f1", {"solution": [True, None]}),
        ("ext_json_schema", {"solution": {"a": float("nan")}}),
        ("ext_json_schema", {"solution": {"a": object()}}),
        ("ext_numeric", {"solution": "1" * 5000}),
        ("ext_ocr", {"solution": float("nan")}),
        ("ext_text_f1", {"solution": "a " * 30_000}),
        ("ext_rouge", {"solution": ["a " * 30_000]}),
        ("ext_json_schema", {"solution": ["a"] * 10_000}),
        ("ext_choice", {"solution": np.array(["A", "Z"])[1:], "options": np.array(["a", "b"])}),
        *[
            ("ext_json_schema", {"solution": {"a": 1}, "schema": schema})
            for schema in (
                {"properties": 5},
                {"minimum": "x"},
                {"required": 5},
                {"anyOf": 5},
                {"enum": 5},
                {"type": [[1]]},
                {"properties": {"a": {"maximum": None}}},
                {1: 2},
            )
        ],
    ],
)
def test_a_broken_row_is_unscored(reward, row):
    outcome = get_reward(reward).outcome("<answer>1</answer>", row)
    assert outcome.score is None
    assert outcome.reason


@pytest.mark.parametrize(
    ("reward", "gold", "answer"),
    [
        ("ext_iou", np.array([10, 20, 110, 220]), "[10, 20, 110, 220]"),
        ("ext_temporal_iou", np.array([1.5, 3.0]), "1.5 to 3"),
        ("ext_count", np.int64(3), "3"),
        ("ext_numeric", np.float32(0.5), "0.5"),
        ("ext_yes_no", np.bool_(False), "no"),
        ("ext_answer", datetime.datetime(2024, 3, 1, 10, 30), "2024-03-01 10:30:00"),
        ("ext_answer", datetime.datetime(2024, 3, 1), "2024-03-01"),
        ("ext_anls", np.array(["first", "1st"]), "1st"),
        ("ext_json_schema", np.array([1, 2]), "[1, 2]"),
    ],
)
def test_gold_may_be_an_array_or_a_day(reward, gold, answer):
    assert get_reward(reward)(answer, {"solution": gold}) == 1.0


def test_a_number_for_labels_is_a_class_number():
    row = {"objects": {"ref": 5, "bbox": [[10, 20, 110, 220]]}}
    outcome = get_reward("ext_detection_f1").outcome("[10, 20, 110, 220]", row, frame="pixel_original")
    assert outcome.score is None
    assert "class number" in outcome.reason


def test_objects_of_ms_swift_as_text_are_in_pixels_of_the_original_too():
    objects = '{"ref": ["cat"], "bbox": [[10, 20, 110, 220]]}'
    iou = get_reward("ext_iou")
    row = {"objects": objects, "image_sizes": SIZES}
    assert iou("[10, 20, 110, 220]", row, frame="pixel_original") == 1.0
    assert iou("[10, 20, 110, 220]", row, frame="pixel_resized") < 1.0


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ("think_answer", "<think>\u200b</think><answer>\u2060</answer>"),
        ("opened_think", "<think></think>b"),
        ("opened_think_answer", "<think></think><answer>b</answer>"),
        ("think_boxed", "<think>a</think>\\boxed{\u200b}"),
    ],
)
def test_blocks_without_anything_to_see_score_nothing(grammar, text):
    assert get_reward("ext_format")(text, {}, grammar=grammar) == 0.0


@pytest.mark.parametrize("loop", ["a", "ha", "()", "🐕", "-=", "<td>"])
def test_a_loop_without_spaces_repeats(loop):
    repetition = get_reward("ext_repetition")
    assert repetition(loop * 200, {}) < -0.9
    assert repetition(f"An ordinary sentence, then {loop * 200}", {}) < -0.9


@pytest.mark.parametrize("loop", ["\n", "- \n", "✅ ", "。 ", "…\n\n", "\U0001f1e9\U0001f1ea ", "* * ", "!?"])
def test_a_loop_without_words_repeats(loop):
    repetition = get_reward("ext_repetition")
    assert repetition(loop * 200, {}) < -0.9
    assert repetition(f"An ordinary sentence, then {loop * 200}", {}) < -0.9


@pytest.mark.parametrize(
    "letter", ["\u3164", "\u115f\u1160", "\uffa0", "\u2800", "\ufe0f", "\u0301", "\u00ad", "\u3000"]
)
def test_letters_that_show_nothing_are_no_content(letter):
    assert get_reward("ext_format")(f"<think>a</think><answer>{letter}</answer>", {}) == 0.0


@pytest.mark.parametrize("opened", ["", "<think>"])
def test_a_text_without_a_place_is_told_by_its_end(opened):
    outcome = get_reward("ext_count").outcome(f"{opened}{'so ' * 40}it may be five", {"solution": 5})
    assert outcome.reason.startswith("unread: ")
    assert outcome.reason.endswith("it may be five'")
