"""The last checkpoint of a run that hangs: when there is one, and when there must be none."""

import threading
from types import SimpleNamespace

import pytest

from swift_grpo_ext.watch.ending import save_last_step, wait_for
from swift_grpo_ext.watch.phases import Phases


class Trainer:
    """What is asked of the host's trainer; weights take as long as `writes` says."""

    is_deepspeed_enabled = is_fsdp_enabled = False

    def __init__(self, folder, step=3, writes=lambda: None):
        self.args = SimpleNamespace(output_dir=str(folder), save_only_model=True)
        self.state = SimpleNamespace(global_step=step, save_to_json=lambda path: open(path, "w").close())
        self.folder, self.writes = folder, writes

    def save_model(self, output, _internal_call):
        (self.folder / output).mkdir(parents=True)
        self.writes()


def stuck_in(phase):
    phases = Phases()
    phases.rest_in(phase)
    return phases


def save(trainer, phases, seconds=20.0):
    return save_last_step(trainer, phases, seconds)


def test_a_whole_checkpoint_or_none(tmp_path):
    assert save(Trainer(tmp_path), stuck_in("reward")) == f"step 3 is saved in {tmp_path / 'checkpoint-3'}"
    names = {path.name for path in (tmp_path / "checkpoint-3").iterdir()}
    assert names == {"trainer_state.json"}
    assert save(Trainer(tmp_path), stuck_in("reward")) == "step 3 was saved before"


def test_not_in_the_middle_of_a_step(tmp_path):
    assert "half changed" in save(Trainer(tmp_path), stuck_in("optimizer"))
    assert "nothing to save" in save(Trainer(tmp_path, step=0), stuck_in("reward"))
    sharded = Trainer(tmp_path)
    sharded.is_deepspeed_enabled = True
    assert "cannot be saved by one rank" in save(sharded, stuck_in("reward"))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_meanwhile_leaves_none(tmp_path):
    phases = stuck_in("rollout")
    text = save(Trainer(tmp_path, writes=lambda: phases.rest_in("optimizer")), phases)
    assert text == "phase rollout came to its end while step 3 was saved, so that is not kept"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("of torch")])
def test_an_error_is_told(tmp_path, error):
    def fail():
        raise error

    assert save(Trainer(tmp_path, writes=fail), stuck_in("reward")).endswith(
        f"{type(error).__name__}: {error}"
    )
    assert not (tmp_path / "checkpoint-3").exists()


def test_a_limit(tmp_path):
    over = threading.Event()
    text = save(Trainer(tmp_path, writes=lambda: over.wait(20)), stuck_in("reward"), seconds=0.1)
    over.set()
    assert "given up" in text
    assert not (tmp_path / "checkpoint-3").exists()


def test_the_others_wait_for_the_one_that_saves(tmp_path):
    waiting = threading.Thread(target=wait_for, args=(tmp_path / "stall_saved", 60))
    waiting.start()
    (tmp_path / "stall_saved").touch()
    waiting.join(60)
    assert not waiting.is_alive()
