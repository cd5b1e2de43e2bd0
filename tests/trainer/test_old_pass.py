"""Real runs: which micro-batches have an old pass, and that its absence changes no figure."""

import json

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.old_pass import OldPass, before_update
from tests.trainer.runs import figures_in_double as figures
from tests.trainer.unstarted_trainer import unstarted_trainer

RUN = {
    "model_type": "llama",
    "template": "qwen2_5",
    "beta": 0,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 2,
    "max_steps": 4,
    "learning_rate": 0.05,
    "lr_scheduler_type": "constant",
}
TWICE = {"num_iterations": 2}
FOUR = {"steps_per_generation": 4, "per_device_train_batch_size": 2}
CUT = {"GROUP_BATCH": "0"}
OFF = {"DISABLE": "trainer.skip_old_logps", **CUT}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return testing.tiny_checkpoint("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def rows(tmp_path):
    """Writes eight questions, of which those at some places come with what a teacher is told."""

    def write(*told):
        path = tmp_path / "rows.jsonl"
        rows = [{"messages": [{"role": "user", "content": f"number {at}"}]} for at in range(8)]
        for at in told:
            rows[at]["teacher_prompt"] = f"number {at} is {at}"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def spared(monkeypatch):
    """Of each micro-batch that is prepared, whether its old pass is left out."""
    found, is_needless = [], OldPass.is_needless

    def watched(self, known):
        found.append(is_needless(self, known))
        return found[-1]

    monkeypatch.setattr(OldPass, "is_needless", watched)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [True] * 8),
        (TWICE, [True] * 4),
        (FOUR, [True, True, False, False] * 2),
        pytest.param({**FOUR, **TWICE}, [True, True, False, False], marks=pytest.mark.slow),
        ({"gradient_accumulation_steps": 3}, [False] * 12),
        ({"kl_in_reward": True, "beta": 0.1}, [False] * 8),
    ],
    ids=["one update", "two iterations", "two updates", "two of both", "not aligned", "KL"],
)
def test_who_has_an_old_pass(llama, rows, spared, tmp_path, options, expected):
    ours = figures(llama, rows(), tmp_path / "ours", CUT, **{**RUN, **options})
    assert spared == expected
    if all(expected) == any(expected) and not {*TWICE} & {*options}:
        return
    spared.clear()
    every = figures(llama, rows(), tmp_path / "every", OFF, **{**RUN, **options})
    assert not any(spared)
    assert every.pop("grad_norm") == pytest.approx(ours.pop("grad_norm"), rel=1e-4)
    for name, values in every.items():
        assert ours[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name


def test_rows_that_tell_a_teacher_have_one(llama, rows, spared, tmp_path):
    """Two prompts a generation batch, one a micro-batch, in the order of the file."""
    options = {"dataset_shuffle": False, "train_dataloader_shuffle": False}
    figures(llama, rows(1, 2), tmp_path / "run", CUT, **{**RUN, **options, "max_steps": 2})
    assert spared == [True, False, False, True]


def test_a_switch_turns_it_off(llama, rows, spared, tmp_path):
    figures(llama, rows(), tmp_path, OFF, **{**RUN, "max_steps": 1})
    assert spared == [False, False]


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        ("", "dynamic_num_samples", True),
        ("", "use_liger_loss", True),
        ("template", "sequence_parallel_size", 2),
    ],
)
def test_where_the_first_pass_cannot_be_kept_all_have_one(
    llama, rows, tmp_path, monkeypatch, owner, name, value
):
    trainer = unstarted_trainer(llama, rows(), tmp_path, **RUN, **TWICE)
    assert before_update(trainer) == 2
    monkeypatch.setattr(trainer, "old_policy", lambda: True)  # would ask the ranks of sequence parallel
    monkeypatch.setattr(getattr(trainer, owner) if owner else trainer, name, value)
    assert before_update(trainer) == 0
