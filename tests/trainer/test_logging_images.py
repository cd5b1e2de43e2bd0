"""completions.jsonl names the images of each completion."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace

from PIL import Image

from swift_grpo_ext import get_reward, testing
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from swift_grpo_ext.trainer.logging import Logging, PictureFolder
from swift_grpo_ext.watch.guard import Guard


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


def test_paths_of_every_form_of_image(tmp_path):
    forms = [{"path": "a.png", "bytes": None}, {"path": None, "bytes": b"x"}, "b.png", Image.new("L", (1, 1))]
    pictures = PictureFolder(tmp_path / "kept")
    own, memory, path, pil, coded, half = map(
        pictures.path_of, [*forms, "data:image/png;base64,AAAA", "data:image/png;base64,A"]
    )
    assert (own, path) == ("a.png", "b.png")
    assert Path(memory).read_bytes() == b"x"
    assert Path(coded).read_bytes() == b"\0\0\0"
    with Image.open(pil) as image:
        assert image.size == (1, 1)
    assert half is None
    assert pictures.path_of({"path": "a.png", "bytes": b"x"}) == memory, (
        "no such file: datasets give base names"
    )
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_paths_are_absolute_as_the_run_finds_them(tmp_path, monkeypatch):
    (tmp_path / "root/img").mkdir(parents=True)
    Image.new("L", (1, 1)).save(tmp_path / "root/img/a.png")
    monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path / "root"))
    paths = PictureFolder(tmp_path / "kept").path_of
    forms = ["img/a.png", {"path": "img/a.png", "bytes": None}]
    assert list(map(paths, forms)) == [str(tmp_path / "root/img/a.png")] * 2
    monkeypatch.chdir(tmp_path / "root")
    monkeypatch.delenv("ROOT_IMAGE_DIR")
    assert paths("img/a.png") == str(tmp_path / "root/img/a.png")
    assert paths("https://example.org/a.png") == "https://example.org/a.png"


def test_pictures_that_fit_no_more_or_cannot_be_written_are_left_out_and_that_is_said_once(tmp_path, said):
    small = PictureFolder(tmp_path / "kept", most_bytes=5)
    kept = [small.path_of({"bytes": content, "path": None}) for content in (b"1234", b"56", b"1234", b"78")]
    assert kept == [kept[0], None, kept[0], None]
    (tmp_path / "file").write_text("")
    assert PictureFolder(tmp_path / "file").path_of({"bytes": b"x", "path": None}) is None
    assert [line.rpartition(": ")[2] for line in said] == [
        "the report shows no more than 0 MiB",
        f"'{tmp_path / 'file'}'",
    ]


def test_a_run_on_images_in_memory_logs_where_they_are_kept(tiny_qwen, digits, tmp_path):
    rows = list(testing.read_jsonl(digits.train))[:2]
    contents = [Path(row["images"][0]).read_bytes() for row in rows]
    for row, content in zip(rows, contents, strict=True):
        row["images"] = [f"data:image/png;base64,{base64.b64encode(content).decode()}"]
    dataset = tmp_path / "memory.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = testing.grpo_arguments(tiny_qwen, dataset, tmp_path / "run", reward_funcs="ext_choice")
    testing.run_in_process("rlhf", arguments)
    logged = {row["images"][0] for row in testing.read_completions(tmp_path / "run")}
    assert sorted(Path(path).read_bytes() for path in logged) == sorted(contents)


def test_a_run_with_the_short_form_logs_boxes(tiny_qwen, digits, tmp_path):
    rows = list(testing.read_jsonl(digits.train))[:4]
    for row in rows:
        row["bbox"] = [14, 7, 14, 49]
        del row["solution"]
        row["messages"] = row["messages"][:1]
    dataset = tmp_path / "boxes.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forms = ["ext_iou:frame=norm1000,gold_frame=pixel_original,gold_order=xywh", "ext_format"]
    arguments = testing.grpo_arguments(tiny_qwen, dataset, tmp_path / "run", reward_funcs=forms, max_steps=1)
    testing.run_in_process("rlhf", arguments)
    logged = testing.read_completions(tmp_path / "run")
    assert len(logged) == 4
    for row in logged:
        assert row["regions"]["gold"] == [{"at": [0.25, 0.125, 0.5, 1.0], "label": ""}]


def test_places_are_those_of_the_reward_that_is_for_the_row(tmp_path):
    table = RewardTable.model_validate(
        {
            "task_column": "kind",
            "rewards": {
                "ext_iou": {"tasks": ["where"], "gold": "box", "parameters": {"gold_frame": "norm1000"}},
                "ext_click": {"tasks": ["gui"], "gold": "box", "parameters": {"gold_frame": "norm1"}},
            },
        }
    )
    rewards = [OfCatalogue(get_reward(name), table=table) for name in ("ext_iou", "ext_click")]
    logging = Logging(SimpleNamespace(guard=Guard(), reward_funcs=rewards))

    def gold(kind, box):
        sample = SimpleNamespace(
            objects=None, extra={"kind": kind, "box": box}, messages=[{"role": "assistant", "content": "3"}]
        )
        places = logging._places_of(sample)
        return places and [region["at"] for region in places["gold"]]

    assert gold("where", [100, 200, 300, 400]) == [[0.1, 0.2, 0.3, 0.4]]
    assert gold("gui", [0.1, 0.2, 0.3, 0.4]) == [[0.1, 0.2, 0.3, 0.4]]
    assert gold("counting", [100, 200, 300, 400]) is None
