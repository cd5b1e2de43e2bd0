"""completions.jsonl names the images of each completion."""

import json

from PIL import Image

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.logged_images import image_paths


def test_a_run_logs_the_images_of_each_completion(tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen, digits.train, tmp_path, reward_funcs="ext_choice", per_device_train_batch_size=8
    )
    testing.run_in_process("rlhf", arguments)
    gold = {row["images"][0]: row["solution"] for row in testing.read_jsonl(digits.train)}
    rows = testing.read_completions(tmp_path)
    assert len(rows) == 16
    assert len({row["images"][0] for row in rows}) == 4
    assert all(gold[row["images"][0]] == row["solution"] for row in rows)


def test_paths_of_every_form_of_image():
    forms = [{"path": "a.png", "bytes": None}, {"path": None, "bytes": b"x"}, "b.png", Image.new("L", (1, 1))]
    assert image_paths([*forms, "data:image/png;base64,AAAA"]) == ["a.png", None, "b.png", None, None]
    assert image_paths([]) == []


def test_a_run_with_boxes_logs_where_they_are(tiny_qwen, digits, tmp_path):
    rows = list(testing.read_jsonl(digits.train))[:4]
    for row in rows:
        row["solution"] = "[14, 7, 28, 56]"
        row["messages"] = row["messages"][:1]
    dataset = tmp_path / "boxes.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = testing.grpo_arguments(
        tiny_qwen, dataset, tmp_path / "run", reward_funcs=["ext_iou", "ext_format"], max_steps=1
    )
    table = json.dumps({"rewards": {"ext_iou": {"parameters": {"gold_frame": "pixel_original"}}}})
    testing.run_in_process("rlhf", arguments, env={"SWIFT_GRPO_EXT_REWARD_TABLE": table})
    logged = testing.read_completions(tmp_path / "run")
    assert len(logged) == 4
    for row in logged:
        assert row["regions"]["gold"] == [{"at": [0.25, 0.125, 0.5, 1.0], "label": ""}]
