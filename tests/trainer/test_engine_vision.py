"""An engine that reads images otherwise is found: positions, pixels, or its tower."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
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
    ("fault", "overrides"),
    [
        ("rows of M-RoPE", FIRST),
        ("channels", FIRST),
        ("filter", FIRST),
        ("old tower", {**MOVES, "beta": 0.01, "freeze_vit": False}),
        ("old tower", {**MOVES, "beta": 0, "freeze_vit": False}),
        (
            "old tower",
            {**MOVES, "freeze_vit": False, "tuner_type": "lora", "target_modules": "all-linear"},
        ),
        pytest.param("", {"max_steps": 3}, marks=pytest.mark.slow),
    ],
)
def test_what_is_done_to_images_is_found(fault, overrides, sharp_qwen, tmp_path, monkeypatch):
    found = run(sharp_qwen, Noise(tmp_path), tmp_path / "run", monkeypatch, fault, **overrides)
    if not fault:
        assert found == []
        return
    assert found, "nothing was said"
    assert "and trainer disagree on sampled tokens" in found[0]["text"]
    assert "row (" in found[0]["text"]


@pytest.mark.parametrize("fault", ["BGR crop@2", "another crop@2"])
def test_an_image_of_a_tool_that_is_read_otherwise_is_found(fault, sharp_qwen, tmp_path, monkeypatch):
    monkeypatch.setitem(multi_turns, "crops", Crops)
    turns = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024}
    found = run(sharp_qwen, Noise(tmp_path), tmp_path / "run", monkeypatch, fault, **turns, **FIRST)
    assert found, "nothing was said"
    assert " of turn 2 of row (" in found[0]["text"]


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


def test_videos_that_are_normalised_as_images_are_found(digits, tmp_path, monkeypatch):
    model = tmp_path / "model"
    testing.tiny_checkpoint("qwen3_vl", model)
    with_norms_of_videos(model)
    rows = films(digits, tmp_path)
    found = run(model, rows, tmp_path / "run", monkeypatch, "norms of images", **TYPES, **FIRST)
    assert found, "nothing was said"
    assert "and trainer disagree on sampled tokens" in found[0]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "video times"])
def test_times_of_videos_are_those_that_are_trained_on(fault, digits, tmp_path, monkeypatch):
    model = testing.tiny_checkpoint("qwen3_vl", tmp_path / "model")
    rows = films(digits, tmp_path)
    found = run(model, rows, tmp_path / "run", monkeypatch, fault, **TYPES, **FIRST)
    if not fault:
        assert found == []
        return
    assert found[0]["id"] == "engine-prompt"
    assert "or times of a video differ" in found[0]["text"]
    assert ".png)" in found[0]["text"], "the row has the name of its first frame"
