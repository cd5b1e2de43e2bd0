"""Rows told apart: prompts by their images too, and rows by their place in the dataset."""

from types import SimpleNamespace

import pytest

from swift_grpo_ext.models.dataset_rows import instead_of, key_of_row, other_rows
from swift_grpo_ext.trainer import rows
from swift_grpo_ext.trainer.row_names import row_number
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch.guard import Guard
from tests.models.contract_cases import picture
from tests.trainer.runs import told


@pytest.fixture
def folder(tmp_path):
    for name, side in (("good.png", 56), ("one.png", 1)):
        picture(side, side).save(tmp_path / name)
    return tmp_path


def row(folder, name, question="Which digit is this?"):
    return {"messages": [{"role": "user", "content": f"<image>{question}"}], "images": [str(folder / name)]}


def samples(*table):
    return [VisionSample.from_row(row) for row in table]


def numbered(checked, *table):
    return checked.number_prompts(checked.named(samples(*table)))


def test_prompt_ids_tell_images_apart(folder):
    table = [row(folder, "good.png"), row(folder, "one.png"), row(folder, "good.png")]
    found = numbered(rows.Rows(SimpleNamespace(reward_funcs=())), *table)
    ids = [sample.prompt_id for sample in found]
    assert ids[0] == ids[2] != ids[1]
    assert len({sample.request_id for sample in found}) == 3


def test_invented_times_of_frames_are_said_once(monkeypatch):
    monkeypatch.delenv("FPS", raising=False)
    asked = {"messages": [{"role": "user", "content": "<video>When?"}], "id": 7}
    clip = {**asked, "videos": [["frame.png"] * 301], "fps": 30}
    with told() as messages:
        rows.Rows(SimpleNamespace(reward_funcs=())).named(
            samples(clip, {**clip, "fps": 25}, {**clip, "fps": 2}, asked)
        )
    (line,) = messages
    assert "row id 7 (frame.png): frame 300 of a 30 fps clip is written as 150 s" in line


def test_prompts_of_different_batches_have_different_ids(folder):
    """Else dynamic sampling of a multi-turn server's groups mixes the first prompts of all its batches."""
    checked = rows.Rows(SimpleNamespace(reward_funcs=()))
    batches = [numbered(checked, row(folder, name)) for name in ("good.png", "one.png")]
    assert batches[0][0].prompt_id != batches[1][0].prompt_id


def test_before_prompt_ids_did_not(folder):
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    table = [row(folder, "good.png"), row(folder, "one.png")]
    found = RolloutTrainerMixin._add_prompt_id_to_inputs(SimpleNamespace(), samples(*table))
    assert found[0].prompt_id == found[1].prompt_id


def number_in(dataset, wanted):
    return row_number(dataset, wanted["messages"], wanted["images"], most=None)


def test_row_number_and_other_rows(folder):
    from datasets import Dataset

    table = [row(folder, "good.png"), row(folder, "one.png"), row(folder, "one.png", question="b")]
    dataset = Dataset.from_list(table)
    assert [number_in(dataset, dataset[n]) for n in range(3)] == [0, 1, 2]
    assert number_in(dataset, row(folder, "missing.png")) is None
    assert number_in(iter(table), table[0]) is None
    assert [found["messages"] for found in other_rows(dataset, [], {"1": ""})] == [
        table[n]["messages"] for n in (1, 2, 0)
    ]
    assert list(other_rows([], table, {"1": ""})) == table


def test_rows_that_nobody_holds_come_first_where_one_is_replaced(folder):
    """A rank whose rows are all of one prompt has none to spare."""
    table = [row(folder, "good.png", question=question) for question in "abc"]
    held, bad = [table[0]] * 4, {key_of_row(table[0])}
    found = instead_of(bad, [*held, table[1]], table, lambda row: True, main=True)
    assert [one["messages"] for one in found.values()] == [table[2]["messages"]]
    held_too = instead_of(
        bad, [*held, table[1]], table, lambda row: row["messages"] == table[1]["messages"], True
    )
    assert [one["messages"] for one in held_too.values()] == [table[1]["messages"]]
    assert instead_of(bad, held, table, lambda row: False, True) == {}


def test_a_run_ends_with_its_own_error_where_the_broken_rows_cannot_be_named(folder, monkeypatch):
    """ms-swift's own template raises: the rows behind it are looked for, and whatever happens then is no news."""
    model = SimpleNamespace(training=True)
    host = SimpleNamespace(template=SimpleNamespace(), model=model, train_dataset=[], guard=Guard())
    checked = rows.Rows(host)

    def lost(*args):
        raise LookupError("the dataset is gone")

    monkeypatch.setattr(checked, "_numbered", lost)
    found = samples(row(folder, "good.png"))
    with told() as messages, pytest.raises(OSError, match="the run's own"), checked.named_in_errors(found):
        raise OSError("the run's own")
    (line,) = messages
    assert "names of rows that cannot be encoded turned off" in line
    assert "LookupError: the dataset is gone" in line


def test_no_more_rows_are_read_than_take_the_place_of_broken_ones(folder):
    read = []

    class Table(list):
        def __getitem__(self, place):
            read.append(place)
            return super().__getitem__(place)

    table = Table(row(folder, "good.png", question=str(number)) for number in range(200))
    found = instead_of({"1"}, [], table, lambda row: True, main=True)
    assert len(found) == len(read) == 1
