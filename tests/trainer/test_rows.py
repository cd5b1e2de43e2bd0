"""Broken rows in real runs: each kind is named and replaced, or refuses the run before it starts."""

import json

import pytest
from PIL import Image
from swift.rewards import ORM, orms

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer import rows
from tests.conftest import built_once
from tests.models.contract_cases import picture

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


def ending_with(*roles):
    call = json.dumps({"name": "crop", "arguments": {}})
    return {"messages": [{"role": role, "content": call} for role in ("user", *roles)], "images": []}


# What each row's error says; None: the row is fine. By family where they differ.
ROWS = {
    "missing.png": "image file not found",
    "empty.png": "0 bytes",
    "truncated.png": "cannot be decoded",
    NO_NETWORK: "cannot be loaded",
    "long.png": {"qwen2_5_vl": "image of 20000x3 pixels cannot be resized", "ovis2": None},
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


def rows_of_every_kind(folder, family):
    """Rows, and what is wrong with each: None if nothing is, else the problem and the file that it is in."""
    table = [row(folder, name) for name in ROWS]
    problems = [(found, name) if (found := expected(name, family)) else None for name in ROWS]
    table += [
        row(folder, "good.png", tags=2),
        row(folder, "good.png", "one.png", tags=1),
        ending_with("tool_call"),
    ]
    problems += [(f"{tags} <image> tags for {images} images", "") for tags, images in ((2, 1), (1, 2))]
    problems += [("before an answer stands the role 'tool_call'", "")]
    table += [row(folder, "good.png", question=f"Is it {number}?") for number in range(7)]
    return table, problems + [None] * 7


def test_broken_rows_are_named_counted_and_replaced(model, family, folder, policy, said, tmp_path):
    policy("skip")
    table, problems = rows_of_every_kind(folder, family)
    steps = train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=5)
    assert len(steps) == 5, "five steps of four prompts: every row was met"
    assert steps[-1]["bad_rows"] == sum(problem is not None for problem in problems)
    for number, problem in enumerate(problems):
        lines = [line for line in said if f"row {number}: " in line]
        assert bool(lines) == (problem is not None), f"row {number}: {problem}"
        assert all(part in line for line in lines for part in problem)
    assert any("animated.gif has 2 frames; the first is used" in line for line in said)


@pytest.mark.parametrize("numbers", [range(10), range(10, 13)], ids=["images", "tags"])
def test_every_kind_of_broken_row_ends_the_run_where_it_is_read(
    numbers, model, family, folder, policy, tmp_path
):
    policy("raise")
    table, problems = rows_of_every_kind(folder, family)
    chosen = [number for number in numbers if problems[number]]
    whole = [table[number] for number in range(len(table) - 4, len(table))]  # they fill a generation batch
    dataset = write(tmp_path / "rows.jsonl", [*(table[number] for number in chosen), *whole])
    with pytest.raises(DatasetRowError) as refusal:
        train(model, dataset, tmp_path / "out")
    message = str(refusal.value)
    assert " broken row" in message
    found = 0
    for place, number in enumerate(chosen):
        for said in (piece for piece in message.split("; ") if f"row {place}: " in piece):
            found += 1
            assert all(part in said for part in problems[number])
    assert found
    assert "SWIFT_GRPO_EXT_BAD_ROW=skip" in message
    assert not list((tmp_path / "out").rglob("completions.jsonl")), "before anything was generated"


def test_where_no_row_is_sound_the_last_line_says_what_is_wrong_with_them(model, folder, policy, tmp_path):
    """As without ROOT_IMAGE_DIR; that rows are replaced is what was tried already."""
    policy("skip")
    table = [row(folder, "gone.png", question=f"{number}?") for number in range(4)]
    with pytest.raises(
        DatasetRowError, match=r"row \d: image file not found .*set ROOT_IMAGE_DIR"
    ) as refusal:
        train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out")
    assert "no sound row was found to take their place" in str(refusal.value)
    assert "SWIFT_GRPO_EXT_BAD_ROW" not in str(refusal.value)


@pytest.mark.parametrize("strategy", ["left", "delete"])
def test_a_corrupt_image_under_a_template_of_ms_swift(strategy, shared_folder, folder, said, tmp_path):
    """Without us the run ends, too, and no text says at which row; with "delete" both replace it."""
    model = built_once(
        shared_folder / "tiny_internvl", lambda made: testing.tiny_checkpoint("internvl", made)
    )
    table = [row(folder, "good.png", question=f"{number}?") for number in range(3)]
    table.insert(1, row(folder, "truncated.png", question="Is it whole?"))
    dataset = write(tmp_path / "rows.jsonl", table)
    options = {"max_steps": 1, "truncation_strategy": strategy}
    fault = "row 1: it cannot be encoded: OSError: "
    place = "[the row that asks '<image>Is it whole?']"
    if strategy == "delete":
        (step,) = train(model, dataset, tmp_path / "out", **options)
        (line,) = [line for line in said if fault in line]
        assert f"{place}; replaced by another row" in line
        assert step["completions/mean_length"] > 0
        return
    with pytest.raises(OSError, match=r"truncated|broken"):
        train(model, dataset, tmp_path / "out", **options)
    (line,) = [line for line in said if fault in line]
    assert line.endswith(
        f"{place} -> fix or remove it, or --truncation_strategy delete to have ms-swift replace such rows"
    )


@pytest.mark.parametrize("roles", [("tool_call",), ("assistant", "tool_call"), ("tool_response", "system")])
def test_a_row_that_no_answer_follows_is_named_under_a_template_of_ms_swift(
    roles, shared_folder, folder, said, tmp_path
):
    model = built_once(
        shared_folder / "tiny_internvl", lambda made: testing.tiny_checkpoint("internvl", made)
    )
    table = [row(folder, "good.png", question=f"{number}?") for number in range(3)] + [ending_with(*roles)]
    with pytest.raises(Exception):  # noqa: B017, PT011 as it comes from ms-swift
        train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=1)
    (line,) = [line for line in said if f"row 3: before an answer stands the role {roles[-1]!r}" in line]
    assert "not user or tool_response" in line


def test_a_row_without_media_that_spells_tags_is_text(model, folder, said, tmp_path):
    pages = ["What is <image> in HTML?", "May a <video> have <audio>? <image><image>", "Hello?", "<image>"]
    table = [row(folder, tags=0, question=page) for page in pages]
    steps = train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=1)
    assert steps[-1]["bad_rows"] == 0
    assert not [line for line in said if "replaced by another row" in line]
    assert len([line for line in said if "it is read as text" in line]) == 1


def grounding(folder, number, **objects):
    turns = [("user", f"<image>{number}: find <ref-object>"), ("assistant", "<bbox>")]
    messages = [{"role": role, "content": content} for role, content in turns]
    objects = {"ref": ["cat"], "bbox": [[1, 2, 30, 40]], "image_id": [0], **objects}
    return {"messages": messages, "images": [str(folder / "good.png")], "objects": objects}


def test_a_box_of_an_image_that_is_not_there_ends_no_run(model, folder, policy, said, tmp_path):
    policy("skip")
    table = [
        grounding(folder, 0),
        grounding(folder, 1, image_id=[3]),
        *(grounding(folder, n) for n in (2, 3)),
    ]
    steps = train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=1)
    assert steps[-1]["bad_rows"] == 1
    (line,) = [line for line in said if "row 1: " in line]
    assert "it cannot be encoded: IndexError" in line
    assert "[the row that asks '<image>1: find" in line


def test_a_dataset_without_one_good_row_ends_with_its_faults(tiny_ovis, folder, policy, tmp_path):
    policy("skip")
    table = [row(folder, f"missing{number}.png") for number in range(4)]
    with pytest.raises(DatasetRowError, match="image file not found"):
        train(tiny_ovis, write(tmp_path / "rows.jsonl", table), tmp_path / "out")


def test_rows_without_the_column_of_images(model, folder, tmp_path):
    texts = [{"messages": [{"role": "user", "content": f"What is {number} and two?"}]} for number in range(2)]
    table = [row(folder, "good.png"), *texts, row(folder, "one.png")]
    steps = train(model, write(tmp_path / "rows.jsonl", table), tmp_path / "out", max_steps=1)
    assert steps[0]["bad_rows"] == 0


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


def test_rewards_get_sizes_of_images_inside_the_messages(model, folder, tmp_path):
    seen = []

    class Look(ORM):
        def __call__(self, completions, **kwargs):
            seen.extend(kwargs["image_sizes"])
            return [0.0] * len(completions)

    orms["look"] = Look
    parts = [{"type": "image", "image": str(folder / "good.png")}, {"type": "text", "text": "Which?"}]
    table = [{"messages": [{"role": "user", "content": parts}]}]
    train(
        model,
        write(tmp_path / "rows.jsonl", table),
        tmp_path / "out",
        reward_funcs="look",
        max_steps=1,
        per_device_train_batch_size=2,
    )
    assert [[image["original"] for image in sizes] for sizes in seen] == [[[56, 56]]] * 2


def test_an_image_is_prepared_once_for_its_group(tiny_qwen, digits, tmp_path, monkeypatch):
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    from swift_grpo_ext.models import images

    decoded, prepared = [], []
    decode, prepare = images.decode, Qwen2VLImageProcessor.__call__
    monkeypatch.setattr(images, "decode", lambda *a: decoded.append(1) or decode(*a))
    monkeypatch.setattr(
        Qwen2VLImageProcessor, "__call__", lambda *a, **k: prepared.append(1) or prepare(*a, **k)
    )
    # For a micro-batch of silent completions ms-swift would prepare a blank image.
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer.skip_zero_advantage")
    train(tiny_qwen, digits.train, tmp_path / "out", max_steps=1, num_generations=4)
    assert len(decoded) == 2, "two prompts, four completions each"
    assert len(prepared) == 2
