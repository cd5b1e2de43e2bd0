"""How a run ends before its last step: its exit status, and which checkpoint can be gone on from."""

import io
import os
import signal
from pathlib import Path

import pytest
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer
from transformers import TrainerState

from swift_grpo_ext.errors import CheckpointError
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing import newest_version, read_logging
from swift_grpo_ext.watch.checkpoints import SAVE_FAILED, is_whole, newest_whole
from swift_grpo_ext.watch.held_out import read_evaluations
from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.phases import Phases
from tests.trainer.runs import REWARD, figures, told

RUN = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1}
IN_THE_GATE = [("rollout", signal.SIGTERM), ("backward", signal.SIGINT)]
OTHERS = [
    (phase, number)
    for phase in (
        "data",
        "prepare",
        "reward",
        "reference",
        "forward",
        "optimizer",
        "save",
        "log",
        "evaluate",
    )
    for number in (signal.SIGTERM, signal.SIGINT)
]


@pytest.mark.parametrize(
    ("phase", "number"), [*IN_THE_GATE, *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)]
)
def test_a_signal_in_any_phase_ends_after_a_saved_step(
    phase, number, tiny_qwen, digits, tmp_path, monkeypatch, capsys
):
    """The second time that the phase is entered, so that there is a step before."""
    entered = []
    turn = Phases._turn

    def turned(phases):
        if phases._names[-1] == phase and phases.now.phase != phase:
            entered.append(phase)
            if len(entered) == 2:
                os.kill(os.getpid(), number)
        turn(phases)

    monkeypatch.setattr(Phases, "_turn", turned)
    handler = signal.getsignal(number)
    evaluated = {}
    if phase == "evaluate":
        rows = tmp_path / "held_out.jsonl"
        rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:4]))
        evaluated = {"val_dataset": rows, "eval_strategy": "steps", "eval_steps": 1}
    with pytest.raises(SystemExit) as ended:
        figures(tiny_qwen, digits.train, tmp_path, **RUN, **evaluated)
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) is handler
    folder = newest_version(tmp_path)
    (stopped,) = read_events(folder, ["stopped"])
    assert stopped["signal"] == signal.Signals(number).name
    assert newest_whole(folder) == folder / stopped["checkpoint"]
    assert stopped["exit_status"] == 128 + number
    assert f"--resume_from_checkpoint {folder / stopped['checkpoint']}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "batch", [2, pytest.param(4, marks=pytest.mark.slow)], ids=["in the middle", "in the only batch"]
)
def test_a_signal_while_held_out_rows_are_answered_ends_with_this_step(
    batch, tiny_qwen, digits, tmp_path, monkeypatch, capsys
):
    rows = tmp_path / "held_out.jsonl"
    rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:4]))
    answer = HostGRPOTrainer.prediction_step
    answered = []

    def signalled(trainer, *args, **kwargs):
        answered.append(trainer.state.global_step)
        if len(answered) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return answer(trainer, *args, **kwargs)

    monkeypatch.setattr(HostGRPOTrainer, "prediction_step", signalled)
    evaluated = {"val_dataset": rows, "eval_strategy": "steps", "eval_steps": 1}
    evaluated |= {"per_device_eval_batch_size": batch}
    with pytest.raises(SystemExit) as ended:
        figures(tiny_qwen, digits.train, tmp_path, max_steps=4, **evaluated)
    assert ended.value.code == 128 + signal.SIGINT
    assert answered == [1]
    folder = newest_version(tmp_path)
    assert read_evaluations(folder) == []
    logged = read_logging(tmp_path)
    assert len([row for row in logged if "grad_norm" in row]) == 1
    assert not [row for row in logged if "eval_reward" in row]
    assert newest_whole(folder) == folder / "checkpoint-1"
    assert f"--resume_from_checkpoint {folder / 'checkpoint-1'}" in capsys.readouterr().err


def test_a_signal_before_the_first_step_ends_with_nothing_trained(
    tiny_qwen, digits, tmp_path, monkeypatch, capsys
):
    rows = tmp_path / "held_out.jsonl"
    rows.write_text("".join(digits.test.read_text().splitlines(keepends=True)[:4]))
    answer = HostGRPOTrainer.prediction_step
    answered = []

    def signalled(trainer, *args, **kwargs):
        answered.append(trainer.state.global_step)
        if len(answered) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return answer(trainer, *args, **kwargs)

    monkeypatch.setattr(HostGRPOTrainer, "prediction_step", signalled)
    evaluated = {"val_dataset": rows, "eval_strategy": "steps", "eval_on_start": True}
    with told() as messages, pytest.raises(SystemExit) as ended:
        figures(tiny_qwen, digits.train, tmp_path, **RUN, **evaluated, per_device_eval_batch_size=2)
    assert ended.value.code == 128 + signal.SIGINT
    assert answered == [0], "the rest of the evaluation is left"
    folder = newest_version(tmp_path)
    (stopped,) = read_events(folder, ["stopped"])
    assert (stopped["step"], stopped["checkpoint"]) == (0, "")
    assert read_events(folder, ["failed"]) == []
    assert newest_whole(folder) is None
    said = capsys.readouterr().err
    assert "the run ended before its first step: nothing to save" in said
    assert "--resume_from_checkpoint" not in said
    assert not [message for message in messages if "[report]" in message]


def test_a_signal_in_the_last_step_ends_a_run_that_is_done(tiny_qwen, digits, tmp_path, monkeypatch):
    original = HostGRPOTrainer.training_step

    def signalled(trainer, *args, **kwargs):
        if trainer.state.global_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(trainer, *args, **kwargs)

    monkeypatch.setattr(HostGRPOTrainer, "training_step", signalled)
    figures(tiny_qwen, digits.train, tmp_path, max_steps=2)


def broken_save(monkeypatch, kind):
    """At step 2 the disk is full when a kind of file is written; half of it is there."""
    owner, name = {
        "model": (HostGRPOTrainer, "save_model"),
        "optimizer": (HostGRPOTrainer, "_save_optimizer_and_scheduler"),
        "random numbers": (HostGRPOTrainer, "_save_rng_state"),
        "state": (TrainerState, "save_to_json"),
    }[kind]
    original = getattr(owner, name)

    def full(self, path, *args, **kwargs):
        if "checkpoint-2" not in str(path):
            return original(self, path, *args, **kwargs)
        target = Path(path) if kind == "state" else Path(path) / "half"
        target.parent.mkdir(exist_ok=True)
        target.write_text('{"half')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, full)


@pytest.mark.parametrize(
    "kind",
    [
        "state",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("model", "optimizer", "random numbers")),
    ],
)
def test_a_full_disk_leaves_whole_checkpoints_only(kind, tiny_qwen, digits, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        broken_save(patch, kind)
        with pytest.raises(SystemExit) as ended:
            figures(tiny_qwen, digits.train, tmp_path, **RUN)
    assert ended.value.code == SAVE_FAILED == 74
    folder = newest_version(tmp_path)
    assert newest_whole(folder) == folder / "checkpoint-1"
    assert not (folder / "checkpoint-2").exists()
    half = folder / "unfinished-checkpoint-2"
    assert half.is_dir()
    for said in (capfd.readouterr().err, read_events(folder, ["failed"])[0]["text"]):
        assert "the checkpoint of step 2 could not be written: OSError: [Errno 28]" in said
        assert f"the newest whole checkpoint is {folder / 'checkpoint-1'}" in said
    with pytest.raises(CheckpointError, match=r"not whole.*checkpoint-1"):
        figures(tiny_qwen, digits.train, tmp_path / "again", **RUN, resume_from_checkpoint=half)


OURS = ("gains.json", "events.jsonl")


def test_a_full_disk_under_our_own_files_ends_nothing(tiny_qwen, digits, tmp_path, monkeypatch, capfd):
    """Of each kind that this package writes beside checkpoints: the run learns the same, and says what is missing."""
    opened = io.open
    full = set()

    def without_room(file, mode="r", *args, **kwargs):
        name = Path(file).name if isinstance(file, (str, Path)) else ""
        kind = next((kind for kind in OURS if kind in name), None)
        if kind and mode[0] in "wax":
            full.add(kind)
            raise OSError(28, "No space left on device", str(file))
        return opened(file, mode, *args, **kwargs)

    options = {"max_steps": 2, "reward_funcs": "even_characters", "external_plugins": [REWARD, plugin_file()]}
    healthy = figures(tiny_qwen, digits.train, tmp_path / "healthy", **options)
    with monkeypatch.context() as patch, told() as said:
        patch.setattr(io, "open", without_room)
        patch.setattr("builtins.open", without_room)
        ours = figures(tiny_qwen, digits.train, tmp_path / "full", **options)
    assert full == set(OURS)
    assert ours == healthy
    text = "\n".join([*said, capfd.readouterr().err])
    assert "gains.json turned off, training is not affected: OSError: [Errno 28]" in text
    assert "/watch, continuing without it: [Errno 28]" in text


def test_a_checkpoint_is_whole_with_its_state(tmp_path):
    for step in (5, 10, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-5" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text('{"global_st')
    assert not is_whole(tmp_path / "checkpoint-20")
    assert newest_whole(tmp_path) == tmp_path / "checkpoint-10"
    assert newest_whole(tmp_path / "checkpoint-10") is None
