"""Broken rows in real runs: each kind is named and replaced, or refuses the run before it starts."""

import json
import logging
from types import SimpleNamespace

import pytest
from PIL import Image

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.testing.contract_cases import picture
from swift_grpo_ext.trainer import rows
from swift_grpo_ext.trainer.row_search import other_rows, row_number

FAST = {"num_generations": 2, "per_device_train_batch_size": 8, "logging_steps": 1, "beta": 0.0}
NO_NETWORK = "http://127.0.0.1:9/image.png"


@pytest.fixture
def folder(tmp_path):
    """Image files of every kind."""
    save = {
        "good.png": picture(56, 56),
        "one.png": picture(1, 1),
        "long.png": Image.new("RGB", (20000, 3), (200, 0, 0)),
        "cmyk.jpg": picture(40, 40).convert("CMYK"),
        "grey16.png": picture(40, 40)
        .convert("L")
        .convert("I")
        .point(lambda value: value * 257)
        .convert("I;16"),
        "palette.png": picture(40, 40).convert("P"),
    }
    for name, image in save.items():
        image.save(tmp_path / name)
    picture(40, 40).save(tmp_path / "animated.gif", save_all=True, append_images=[Image.new("RGB", (40, 40))])
    whole = (tmp_path / "good.png").read_bytes()
    (tmp_path / "truncated.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.png").touch()
    return tmp_path


def row(folder, *names, tags=None, question="Which digit is this?"):
    images = [name if name.startswith("http") else str(folder / name) for name in names]
    tags = len(images) if tags is None else tags
    return {"messages": [{"role": "user", "content": "<image>" * tags + question}], "images": images}


# What each row's error says; None: the row is fine. By family where they differ.
ROWS = {
    "missing.png": "image file not found",
    "empty.png": "0 bytes",
    "truncated.png": "cannot be decoded",
    NO_NETWORK: "cannot be loaded",
    "long.png": {"qwen2_5_vl": "aspect ratio", "ovis2": None},
    "one.png": None,
    "cmyk.jpg": None,
    "grey16.png": None,
    "palette.png": None,
    "animated.gif": None,
}


def expected(name, family):
    found = ROWS[name]
    return found[family] if isinstance(found, dict) else found


@pytest.fixture(params=["qwen2_5_vl", "ovis2"])
def family(request, monkeypatch):
    monkeypatch.setenv("SWIFT_TIMEOUT", "1")
    return request.param


@pytest.fixture
def model(family, request):
    return request.getfixturevalue({"qwen2_5_vl": "tiny_qwen", "ovis2": "tiny_ovis"}[family])


@pytest.fixture
def policy(monkeypatch):
    def choose(value):
        # Not through the environment: the datasets package and accelerate save and restore all of it.
        monkeypatch.setattr(rows, "current_settings", lambda: Settings(bad_row=value))

    return choose


@pytest.fixture
def said():
    """Everything that the host's logger said."""
    from swift.utils import get_logger

    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    get_logger().addHandler(handler)
    yield lines
    get_logger().removeHandler(handler)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(model, dataset, output, **overrides):
    swift_grpo_ext.register()
    arguments = testing.grpo_arguments(
        model, dataset, output, **{"reward_funcs": "format", "max_completion_length": 2, **FAST, **overrides}
    )
    testing.run_in_process("rlhf", arguments)
    return [record for record in testing.read_logging(output) if "reward" in record]


def test_broken_rows_are_named_counted_and_replaced(model, family, folder, policy, said, tmp_path):
    policy("skip")
    table = [row(folder, name) for name in ROWS]
    table += [
        row(folder, "good.png", tags=2),
        row(folder, "good.png", "one.png", tags=1),
        row(folder, tags=1),
    ]
    table += [row(folder, "good.png", question=f"Is it {number}?") for number in range(7)]
    problems = [
        *(expected(name, family) for name in ROWS),
        "2 <image> tags",
        "1 <image> tags",
        "1 <image> tags",
    ]
    steps = train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=5)
    assert len(steps) == 5, "five steps of four prompts: every row was met"
    assert steps[-1]["bad_rows"] == sum(problem is not None for problem in problems)
    for number, problem in enumerate(problems):
        lines = [line for line in said if f"row {number}: " in line]
        assert bool(lines) == (problem is not None), f"row {number}: {problem}"
        assert all(problem in line for line in lines)
    assert any("animated.gif has 2 frames; the first is used" in line for line in said)


def test_a_run_with_broken_rows_is_refused_before_it_starts(tiny_ovis, folder, policy, tmp_path):
    policy("raise")
    table = [
        row(folder, "good.png"),
        row(folder, "missing.png"),
        row(folder, "good.png"),
        row(folder, "empty.png"),
    ]
    with pytest.raises(DatasetRowError) as refusal:
        train(tiny_ovis, write(tmp_path / "rows.jsonl", table), tmp_path / "out")
    message = str(refusal.value)
    assert "2 broken rows" in message
    assert "row 1: image file not found" in message
    assert "missing.png" in message
    assert "row 3:" in message
    assert "SWIFT_GRPO_EXT_BAD_ROW=skip" in message


def test_a_dataset_without_one_good_row_ends_with_its_faults(tiny_ovis, folder, policy, tmp_path):
    policy("skip")
    table = [row(folder, f"missing{number}.png") for number in range(4)]
    with pytest.raises(DatasetRowError, match="image file not found"):
        train(tiny_ovis, write(tmp_path / "rows.jsonl", table), tmp_path / "out")


def test_rows_whose_images_leave_no_room_for_text(tiny_qwen, folder, policy, said, tmp_path):
    picture(280, 280).save(folder / "large.png")
    table = [row(folder, "large.png"), *(row(folder, "good.png", question=f"{n}?") for n in range(3))]
    steps = train(
        tiny_qwen, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_length=64, max_steps=1
    )
    assert steps[-1]["bad_rows"] == 1
    assert any("102 image tokens leave no room for text in 64 tokens" in line for line in said)


def test_too_long_rows_are_deleted_group_by_group(tiny_qwen, folder, said, tmp_path):
    table = [row(folder, "good.png", question="long " * 200)]
    table += [row(folder, "good.png", question=f"{n}?") for n in range(3)]
    steps = train(
        tiny_qwen,
        write(tmp_path / "rows.jsonl", table),
        tmp_path / "out",
        max_length=128,
        max_steps=1,
        truncation_strategy="delete",
    )
    assert steps[-1]["bad_rows"] == 1
    prompts = [record["prompt"] for record in testing.read_completions(tmp_path / "out")]
    groups = [prompts[start : start + 2] for start in range(0, len(prompts), 2)]
    assert all(len(set(group)) == 1 for group in groups)


def test_rewards_get_sizes_and_grids(model, family, folder, tmp_path):
    from swift.rewards import ORM, orms

    seen = []

    class Look(ORM):
        def __call__(self, completions, **kwargs):
            seen.append({name: kwargs.get(name) for name in ("image_sizes", "image_grid_thw")})
            return [0.0] * len(completions)

    orms["look"] = Look
    picture(150, 90).save(folder / "wide.png")
    table = [row(folder, "wide.png"), row(folder, "good.png", "wide.png"), row(folder)]
    one_prompt = {"per_device_train_batch_size": 2, "max_steps": 3}
    train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", reward_funcs="look", **one_prompt)
    by_count = {len(batch["image_sizes"][0]): batch for batch in seen}
    assert set(by_count) == {0, 1, 2}
    resized = {"qwen2_5_vl": [140, 84], "ovis2": [112, 168]}[family]  # as their processors choose
    assert by_count[1]["image_sizes"] == [[{"original": [150, 90], "resized": resized}]] * 2
    assert by_count[2]["image_sizes"][0][0]["original"] == [56, 56]
    grids = {count: batch["image_grid_thw"] for count, batch in by_count.items()}
    if family == "qwen2_5_vl":
        assert grids[1] == [[[1, 6, 10]]] * 2
        assert grids[0] == [[]] * 2
    else:
        assert grids == {0: None, 1: None, 2: None}


def test_an_image_is_prepared_once_for_its_group(tiny_qwen, digits, tmp_path, monkeypatch):
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    from swift_grpo_ext.models import images

    decoded, prepared = [], []
    decode, prepare = images.decode, Qwen2VLImageProcessor.__call__
    monkeypatch.setattr(images, "decode", lambda *a: decoded.append(1) or decode(*a))
    monkeypatch.setattr(
        Qwen2VLImageProcessor, "__call__", lambda *a, **k: prepared.append(1) or prepare(*a, **k)
    )
    train(tiny_qwen, digits.train, tmp_path / "out", max_steps=1, num_generations=4)
    assert len(decoded) == 2, "two prompts, four completions each"
    assert len(prepared) == 2


def samples(*table):
    from swift.rl_core.data import GRPOSample

    return [GRPOSample.from_row(row) for row in table]


def test_prompt_ids_tell_images_apart(folder):
    table = [row(folder, "good.png"), row(folder, "one.png"), row(folder, "good.png")]
    found = rows.CheckedRows._add_prompt_id_to_inputs(SimpleNamespace(), samples(*table))
    ids = [sample.prompt_id for sample in found]
    assert ids[0] == ids[2] != ids[1]
    assert len({sample.request_id for sample in found}) == 3


def test_before_prompt_ids_did_not(folder):
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    table = [row(folder, "good.png"), row(folder, "one.png")]
    found = RolloutTrainerMixin._add_prompt_id_to_inputs(SimpleNamespace(), samples(*table))
    assert found[0].prompt_id == found[1].prompt_id


def test_row_number_and_other_rows(folder):
    from datasets import Dataset

    table = [row(folder, "good.png"), row(folder, "one.png"), row(folder, "one.png", question="b")]
    dataset = Dataset.from_list(table)
    assert [row_number(dataset, dataset[n]) for n in range(3)] == [0, 1, 2]
    assert row_number(dataset, row(folder, "missing.png")) is None
    assert row_number(iter(table), table[0]) is None
    assert [found["messages"] for found in other_rows(dataset, [], {"1": ""})] == [
        table[n]["messages"] for n in (1, 2, 0)
    ]
    assert list(other_rows(iter([]), table, {"1": ""})) == table
