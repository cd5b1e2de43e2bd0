"""An engine that reads images otherwise is told by what it does to them: positions, pixels, or its tower."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.engine.agreement import OTHER_POSITIONS
from swift_grpo_ext.trainer.engine.vision import OTHER_PICTURES, with_rows
from tests.conftest import built_once
from tests.trainer.crops import Crops
from tests.trainer.test_engine_check import FIRST, MOVES, run


def sharp(folder, factor=6, **options):
    """A tiny Qwen2.5-VL whose words depend on where it sees what: its random weights are larger."""
    testing.tiny_qwen2_5_vl(folder, **options)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if tensor.ndim > 1 and "norm" not in name:
            tensor *= factor
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def sharp_qwen(shared_folder):
    return built_once(shared_folder / "sharp_qwen", sharp)


class Noise:
    """Rows with a picture of noise in colour, 115 x 87 pixels, that processors bring to 112 x 84."""

    def __init__(self, folder, pictures=8):
        generator = np.random.default_rng(0)
        rows = []
        for number in range(8):
            path = folder / f"{number % pictures}.png"
            if number < pictures:
                Image.fromarray(generator.integers(0, 256, (87, 115, 3), dtype=np.uint8)).save(path)
            question = {"role": "user", "content": "<image>Where is it?"}
            rows.append({"messages": [question], "images": [str(path)]})
        self.train = folder / "rows.jsonl"
        self.train.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("fault", "overrides", "rule", "words"),
    [
        ("rows of M-RoPE", FIRST, "engine-positions", "drops the rows of height and width"),
        ("channels", FIRST, "engine-pixels", "red and blue are swapped (BGR)"),
        ("filter", FIRST, "engine-pixels", "another filter there: nearest"),
        (
            "old tower",
            {**MOVES, "beta": 0.01, "freeze_vit": False},
            "engine-weights",
            "those of the vision tower that training started from",
        ),
        (
            "old tower",
            {**MOVES, "beta": 0, "freeze_vit": False},
            "engine-weights",
            "or it keeps features of images over it (https://github.com/vllm-project/vllm/issues/44910)",
        ),
        (
            "old tower",
            {**MOVES, "freeze_vit": False, "tuner_type": "lora", "target_modules": "all-linear"},
            "engine-weights",
            "those of the vision tower that training started from",
        ),
        pytest.param("", {"max_steps": 3}, "", "", marks=pytest.mark.slow),
    ],
)
def test_what_is_done_to_images_is_told_apart(
    fault, overrides, rule, words, sharp_qwen, tmp_path, monkeypatch
):
    found = run(sharp_qwen, Noise(tmp_path), tmp_path / "run", monkeypatch, fault, **overrides)
    if not fault:
        assert found == []
        return
    assert found, "nothing was said"
    assert found[0]["id"] == rule
    assert words in found[0]["text"]
    assert "row (" in found[0]["text"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("BGR crop@2", "red and blue are swapped (BGR)"),
        (
            "another crop@2",
            "the turns before turn 2 agree, so the weights are the same; the image that it added",
        ),
    ],
)
def test_an_image_of_a_tool_that_is_read_otherwise_is_told(fault, words, sharp_qwen, tmp_path, monkeypatch):
    monkeypatch.setitem(multi_turns, "crops", Crops)
    turns = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024}
    found = run(sharp_qwen, Noise(tmp_path), tmp_path / "run", monkeypatch, fault, **turns, **FIRST)
    assert found, "nothing was said"
    assert found[0]["id"] == "engine-pixels"
    assert words in found[0]["text"]
    assert "of turn 2 (message 4, assistant) of row (" in found[0]["text"]


def films(digits, folder):
    """Rows with a clip of four frames, four a second; an engine at fault (``video times``) takes eight."""
    paths = [json.loads(line)["images"][0] for line in digits.train.read_text().splitlines()[:16]]
    asked = {"messages": [{"role": "user", "content": "<video>When?"}], "fps": 4}
    asked["chat_template_kwargs"] = {"raw_fps": 4.0}
    clips = [{**asked, "videos": [paths[at : at + 4]]} for at in range(0, 16, 4)]
    path = folder / "films.jsonl"
    path.write_text("".join(json.dumps(clip) + "\n" for clip in clips))
    return SimpleNamespace(train=path)


TYPES = {"model_type": "qwen3_vl", "template": "qwen3_vl"}


def with_norms_of_videos(model):
    """Let a checkpoint normalise images otherwise than videos."""
    path = model / "processor_config.json"
    config = json.loads(path.read_text())
    config["image_processor"] |= {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
    path.write_text(json.dumps(config))


def test_videos_that_are_normalised_as_images_are_told(digits, tmp_path, monkeypatch):
    model = tmp_path / "model"
    testing.tiny_checkpoint("qwen3_vl", model)
    with_norms_of_videos(model)
    rows = films(digits, tmp_path)
    found = run(model, rows, tmp_path / "run", monkeypatch, "norms of images", **TYPES, **FIRST)
    assert found, "nothing was said"
    assert found[0]["id"] == "engine-pixels"
    assert "normalised with mean and deviation of the image processor" in found[0]["text"]


@pytest.mark.parametrize("fault", ["", "video times"])
def test_times_of_videos_are_those_that_are_trained_on(fault, digits, tmp_path, monkeypatch):
    model = testing.tiny_checkpoint("qwen3_vl", tmp_path / "model")
    rows = films(digits, tmp_path)
    found = run(model, rows, tmp_path / "run", monkeypatch, fault, **TYPES, **FIRST)
    if not fault:
        assert found == []
        return
    assert found[0]["id"] == "engine-prompt"
    assert "the times of a video's frames differ" in found[0]["text"]
    assert ".png)" in found[0]["text"], "the row has the name of its first frame"


def test_filters_and_channels_change_pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (87, 115, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    changed = {name: np.asarray(change(picture, (112, 84))) for name, change in OTHER_PICTURES.items()}
    assert (changed.pop("channels swapped") == pixels[..., ::-1]).all()
    assert {made.shape for made in changed.values()} == {(84, 112, 3)}
    assert len({made.tobytes() for made in changed.values()}) == len(changed) == 3
    assert OTHER_PICTURES["filter nearest"](picture, None) is picture, "the final size is not known"


def test_positions_are_changed_as_their_names_say():
    positions = torch.tensor([[[0, 1, 1, 1, 2]], [[0, 1, 1, 2, 3]], [[0, 1, 2, 1, 3]]])
    time, height, width = positions.tolist()
    changed = [with_rows(rows, positions).tolist() for rows in OTHER_POSITIONS.values()]
    counted = [[0, 1, 2, 3, 4]]
    assert changed == [
        [time, time, time],
        [time, time, width],
        [time, height, time],
        [time, width, height],
        [counted, counted, counted],
    ]
