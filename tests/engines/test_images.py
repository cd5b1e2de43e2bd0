"""A vLLM that reads images otherwise, or loses those of a turn, is found; without a fault nothing is said."""

import pytest

from swift_grpo_ext import testing
from tests.engines.conftest import HERE, TRAINER_PLUGINS, compared, grpo_with_vllm, said
from tests.engines.test_families import FAMILIES
from tests.trainer.test_engine_vision import Noise, films, with_norms_of_videos

pytestmark = [pytest.mark.lane, pytest.mark.timeout(1800)]

COLOCATE = {"vllm_mode": "colocate", "max_steps": 2, "max_completion_length": 16, "max_length": 1024}
TURNS = {
    "multi_turn_scheduler": "crops",
    "max_turns": 3,
    "vllm_max_model_len": 1024,
    "external_plugins": [*TRAINER_PLUGINS, HERE / "crops.py"],
}
TRAINED_TOWER = {"learning_rate": 0.05, "beta": 0.01, "freeze_vit": False}
BF16 = {"torch_dtype": "bfloat16", "bf16": True}


def named_at_first(run):
    """The first fault that was told, and the step that it was told in."""
    verdicts = [event for event in said(run) if event["id"].startswith("engine-")]
    assert verdicts, f"nothing was said: mean exp|d| {compared(run)}"
    assert verdicts[0]["step"] <= 2
    assert "row (" in verdicts[0]["text"]
    return verdicts[0]["id"], verdicts[0]["text"]


@pytest.mark.parametrize(
    ("fault", "overrides"),
    [("rows of M-RoPE", {}), ("channels", {}), ("filter", {}), ("old tower", TRAINED_TOWER)],
)
def test_what_is_done_to_images_is_found(fault, overrides, sharp_qwen, tmp_path):
    rows = Noise(tmp_path, pictures=1)  # an image that comes again is where features are stale
    run = grpo_with_vllm(sharp_qwen, rows, tmp_path, {"ENGINE_FAULT": fault}, **{**COLOCATE, **overrides})
    assert named_at_first(run)[0] in ("engine-weights", "engine-numerics")


def test_a_trained_tower_is_that_of_the_engine_after_a_sync(sharp_qwen, tmp_path):
    run = grpo_with_vllm(
        sharp_qwen, Noise(tmp_path, pictures=1), tmp_path, {}, **{**COLOCATE, **TRAINED_TOWER}
    )
    assert said(run) == []
    assert len(compared(run)) == 2


@pytest.mark.parametrize(
    ("kept", "encoded"),
    [("", [1, 1, 1, 1]), ("old tower", [1, 0, 0, 0])],
    ids=["as ms-swift does", "kept over a sync"],
)
def test_how_often_an_image_is_encoded_with_a_frozen_tower(kept, encoded, sharp_qwen, tmp_path):
    """An image that comes again in every step, for one group of four. What is kept is exact: nothing is said."""
    options = {"max_steps": 4, "learning_rate": 0.01}
    options |= {"external_plugins": [*TRAINER_PLUGINS, HERE / "encoded.py"]}
    variables = {"ENGINE_FAULT": kept}
    rows = Noise(tmp_path, pictures=1)
    run = grpo_with_vllm(sharp_qwen, rows, tmp_path, variables, **{**COLOCATE, **options})
    assert [row["images"] for row in testing.read_jsonl(tmp_path / "encoded.jsonl")] == encoded
    assert said(run) == []
    assert len(compared(run)) == 4


@pytest.mark.parametrize("fault", ["another question", "image lost", "image added", "ids mixed"])
def test_a_fault_of_a_later_turn_is_found(fault, tiny_qwen_stock, digits, tmp_path):
    run = grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, {"ENGINE_FAULT": fault}, **{**COLOCATE, **TURNS})
    assert named_at_first(run)[0] == "engine-prompt"


def seen_films(digits, folder, fault="", prepare=None, **options):
    """A run of a tiny Qwen3-VL on videos."""
    model = folder / "model"
    testing.tiny_checkpoint("qwen3_vl", model, stock_vocabulary=True, **FAMILIES["qwen3_vl"].text)
    if prepare:
        prepare(model)
    return grpo_with_vllm(
        model, films(digits, folder), folder, {"ENGINE_FAULT": fault}, **{**COLOCATE, **options}
    )


def test_videos_are_what_they_are_in_training(digits, tmp_path):
    run = seen_films(digits, tmp_path)
    assert said(run) == []
    assert len(compared(run)) == 2


def test_other_times_of_a_video_are_named(digits, tmp_path):
    rule, text = named_at_first(seen_films(digits, tmp_path, "video times"))
    assert rule == "engine-prompt"
    assert "or times of a video differ" in text


def test_videos_that_vllm_normalises_as_images_are_told(digits, tmp_path):
    rule, text = named_at_first(seen_films(digits, tmp_path, prepare=with_norms_of_videos))
    assert rule == "engine-weights"
    assert "reads images otherwise" in text


def test_videos_that_the_processor_normalises_are_those_of_training(digits, tmp_path):
    """The cure for the fault of the test above."""
    on_the_host = {"vllm_engine_kwargs": {"mm_device_do_normalize": False}}
    run = seen_films(digits, tmp_path, prepare=with_norms_of_videos, **on_the_host)
    assert said(run) == []


@pytest.mark.parametrize("precision", [{}, BF16], ids=["fp32", "bf16"])
def test_200_healthy_steps_of_three_turns_with_images_are_silent(
    precision, tiny_qwen_stock, digits, tmp_path
):
    long = {"max_steps": 200, "learning_rate": 1e-4, "num_train_epochs": 100}
    run = grpo_with_vllm(tiny_qwen_stock, digits, tmp_path, {}, **{**COLOCATE, **TURNS, **long, **precision})
    assert [event for event in said(run) if event["id"].startswith("engine-")] == []
    assert len(compared(run)) >= 40
    assert len(run.steps) == 200
    assert all(step["num_turns"] == 3 for step in run.steps)
