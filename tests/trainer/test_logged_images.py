"""completions.jsonl names the images of each completion."""

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
