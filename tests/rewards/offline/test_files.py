"""Which completion belongs to which row, and files that cannot be read."""

import pytest
from PIL import Image

from swift_grpo_ext.errors import DatasetRowError, RewardError, SettingsError
from swift_grpo_ext.rewards.offline import command
from swift_grpo_ext.rewards.offline.files import read_rows
from tests.rewards.offline.rows import BOX, HALF, ROWS_OF_THREE, lines


def test_an_infer_result_of_other_rows_is_refused(data, run, tmp_path):
    def result(row, text):
        asked = [*ROWS_OF_THREE[row]["messages"], {"role": "assistant", "content": text}]
        return {"response": text, "labels": None, "logprobs": None, "messages": asked, "images": []}

    right = lines(tmp_path / "right.jsonl", [result(row, HALF) for row in range(3)])
    assert [record["score"] for record in run(data, "ext_iou", completions=right)[1]] == [0.5, 0.5, None]
    swapped = lines(tmp_path / "swapped.jsonl", [result(row, HALF) for row in (1, 0, 2)])
    with pytest.raises(DatasetRowError, match=r"'Where is the dog\?' for a row that asks .*swapped.jsonl:1"):
        run(data, "ext_iou", completions=swapped)


def test_the_completions_of_a_run_are_rows(run, tmp_path):
    table = {
        "step": ["1"] * 3,
        "prompt": ["<|im_start|>user\n<image>Where?<|im_end|>"] * 3,
        "question": ["Where?"] * 3,
        "completion": [f"<answer>{HALF}</answer>", f"<answer>{BOX}</answer>", "z"],
        "ext_iou": [0.0] * 3,
        "solution": [BOX] * 3,
        "images": [["/data/b.png"]] * 3,
    }
    path = lines(tmp_path / "completions.jsonl", [table, table])  # ms-swift writes the last one twice
    _, records = run(path, "ext_iou")
    assert [(record["row"], record["score"]) for record in records] == [(1, 0.5), (2, 1.0), (3, 0.0)]
    assert read_rows(path)[0]["messages"] == [{"role": "user", "content": "Where?"}]


def test_the_completions_of_a_run_need_no_dataset(data, run, tmp_path):
    path = lines(tmp_path / "completions.jsonl", [{"completion": ["x"], "solution": [BOX]}])
    with pytest.raises(
        DatasetRowError, match=r"1 completions for 3 rows.*completions.jsonl is scored by itself"
    ):
        run(data, "ext_iou", completions=path)


@pytest.mark.parametrize(
    ("rows", "gold"),
    [
        ([{"solution": 3}, {"solution": 2.5}], 3.0),
        ([{"solution": {"buyer": {"name": "A"}, "total": 1}}, {"solution": None}], None),
        ([{"solution": "2024-05-01"}, {"solution": "2024-05-02"}], None),
    ],
)
def test_rows_are_what_a_run_sees(rows, gold, tmp_path):
    from swift.dataset import load_dataset

    asked = [{"messages": [{"role": "user", "content": "q"}], **row} for row in rows]
    path = lines(tmp_path / "data.jsonl", asked)
    loaded, _ = load_dataset(str(path), remove_unused_columns=False, load_from_cache_file=False)
    golds = [row["solution"] for row in read_rows(path)]
    assert golds == list(loaded["solution"])
    assert gold is None or (golds[0] == gold and isinstance(golds[0], float))


def test_a_file_that_a_run_cannot_load_is_an_error(tmp_path):
    path = lines(tmp_path / "data.jsonl", [{"solution": "\ud800"}])
    with pytest.raises(DatasetRowError, match=r"a run cannot load it: .*data.jsonl"):
        read_rows(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "no such file"),
        ("", "nothing in it"),
        ("\n\n", "nothing in it"),
        ("{}\n{", r"line is not JSON \[.*:2\]"),
        ("{}\n\n{}", r"line is not JSON \[.*:2\]"),
        ("[1]", "line is not a JSON object"),
        ("[" * 100_000, "line is not JSON"),
        ("{}", "no completion .*row 1"),
        ('{"completion": 7}', "no completion"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_line(content, what, tmp_path):
    path = tmp_path / "data.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DatasetRowError, match=what):
        command.run(path, ["ext_iou"])


def test_completions_that_do_not_fit_are_refused(data, run, tmp_path):
    few = lines(tmp_path / "few.jsonl", ["a", "b"])
    with pytest.raises(DatasetRowError, match="2 completions for 3 rows"):
        run(data, "ext_iou", completions=few)
    with pytest.raises(SettingsError, match="give one of the two"):
        run(data, "ext_iou", completions=few, gold=True)
    with pytest.raises(RewardError, match="did you mean 'ext_iou'"):
        run(data, "ext_iuo", gold=True)
    with pytest.raises(RewardError, match="ext_format compares with no gold"):
        run(data, "ext_format", gold=True)
    with pytest.raises(RewardError, match="how accuracy wants its gold answered is not known"):
        run(data, "accuracy", gold=True)


def test_a_column_of_a_run_that_lacks_values_is_left_out(run, tmp_path):
    table = {"completion": ["5", "6"], "solution": [5, 6], "answer": [5]}
    path = lines(tmp_path / "completions.jsonl", [table])
    assert [record["score"] for record in run(path, "ext_count")[1]] == [1.0, 1.0]
    assert "answer" not in read_rows(path)[0]


def test_a_line_of_a_run_that_is_no_table_is_refused(run, tmp_path):
    whole = {"completion": ["5"], "prompt": ["x"], "images": [["a.png"]]}
    path = lines(tmp_path / "completions.jsonl", [whole, {"prompt": ["q"]}])
    with pytest.raises(DatasetRowError, match=r"no completion .*row 1"):
        run(path, "ext_count")


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"solution": 5}\n' + '{"solution": "文本"}\n'.encode("gbk"))
    with pytest.raises(DatasetRowError, match=r"not UTF-8 .*data.jsonl:2"):
        command.run(path, ["ext_ocr"], gold=True)


def test_sizes_of_local_images_are_read(run, tmp_path):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    row = {
        "images": ["a.png"],
        "solution": [64, 48, 128, 96],
    }
    data = lines(
        tmp_path / "data.jsonl",
        [{**row, "completion": "[100, 100, 200, 200]"}, {**row, "images": ["no.png"]}],
    )
    answers = lines(tmp_path / "answers.jsonl", ["[100, 100, 200, 200]"] * 2)
    frames = "ext_iou:frame=norm1000,gold_frame=pixel_original"
    _, (first, second) = run(data, frames, completions=answers)
    assert first["score"] == 1.0
    needs = 'pixel_original needs column image_sizes for image 0, as {"original": [w, h], "resized": [w, h]}'
    assert second["reason"] == f"{needs}, or another frame= of the answers"


def test_gold_needs_no_image(run, tmp_path):
    row = {
        "images": ["https://127.0.0.1/a.png"],
        "solution": [64, 48, 128, 96],
    }
    wide = {**row, "solution": [1200, 48, 1300, 96]}
    data = lines(tmp_path / "data.jsonl", [row, wide])
    assert run(data, "ext_iou:gold_frame=pixel_original", gold=True)[0]


def test_a_gold_in_pixels_of_an_image_that_grows_is_read(run, tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "small.png")
    data = lines(tmp_path / "data.jsonl", [{"images": ["small.png"], "solution": [4, 8, 50, 50]}])
    assert run(data, "ext_iou:frame=pixel_resized", gold=True)[0]
