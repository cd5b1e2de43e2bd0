"""Images of the next generation batch are prepared while this one is sampled: same results, and nobody waits."""

import json
import threading
import time
from pathlib import Path

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.models import images
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from swift_grpo_ext.trainer.rows import Rows
from tests.forked import run_ranks
from tests.trainer.runs import FIGURES, REWARD, figures, told

OFF = {"DISABLE": "trainer.prepare_ahead,callbacks.report"}
RUN = {"per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 4}


class Clock:
    """When images were loaded, by which threads, and when the step waited for rows and sampled."""

    def __init__(self, monkeypatch, load_seconds=0.0, rollout_seconds=0.0):
        self.loads, self.waits = [], []
        read, good, roll = images.read_source, Rows.good, GRPOTrainer._generate_completions

        def slow_read(*args):
            start = time.monotonic()
            time.sleep(load_seconds)
            found = read(*args)
            self.loads.append((start, time.monotonic(), threading.current_thread().name))
            return found

        def timed_good(rows, given):
            start = time.monotonic()
            try:
                return good(rows, given)
            finally:
                self.waits.append((start, time.monotonic()))

        def slow_rollout(trainer, samples):
            time.sleep(rollout_seconds)
            return roll(trainer, samples)

        monkeypatch.setattr(images, "read_source", slow_read)
        monkeypatch.setattr(Rows, "good", timed_good)
        monkeypatch.setattr(GRPOTrainer, "_generate_completions", slow_rollout)

    def ahead(self):
        return [name.startswith("swift-grpo-ext-images") for _, _, name in self.loads]

    def hidden(self):
        """Share of the loading behind the first generation batch's that the step did not wait for."""
        later = [load for load in self.loads if load[0] > self.waits[0][1]]
        waited = sum(
            max(0.0, min(end, done) - max(start, begun))
            for start, end, _ in later
            for begun, done in self.waits[1:]
        )
        return 1 - waited / sum(end - start for start, end, _ in later)


def test_the_same_figures_and_later_images_by_the_threads(tiny_qwen, digits, tmp_path, monkeypatch):
    with monkeypatch.context() as patches:
        off = Clock(patches)
        without = figures(tiny_qwen, digits.train, tmp_path / "off", OFF, **RUN)
    on = Clock(monkeypatch)
    with_it = figures(tiny_qwen, digits.train, tmp_path / "on", **RUN)
    assert with_it == without
    assert not any(off.ahead())
    assert len(on.loads) >= len(off.loads) == 2 * RUN["max_steps"]
    assert sum(on.ahead()) >= len(off.loads) - 2, "all but those of the first generation batch"


def rows_with_a_broken_image(digits, folder, count, broken):
    """A dataset of so many rows; the image of one of them is none."""
    rows = [json.loads(line) for line in digits.train.read_text().splitlines()[:count]]
    path = folder / "broken.png"
    path.write_bytes(b"no image")
    rows[broken]["images"] = [str(path)]
    dataset = folder / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return dataset


def test_a_broken_image_is_named_at_its_row_and_replaced(tiny_qwen, digits, tmp_path):
    dataset = rows_with_a_broken_image(digits, tmp_path, 5, broken=2)
    named = []
    for name, switches in (("off", OFF), ("on", {})):
        with told() as lines:
            figures(tiny_qwen, dataset, tmp_path / name, switches, **RUN, num_train_epochs=4)
        named.append([line for line in lines if "replaced by another row" in line])
    assert named[0] == named[1]
    assert named[0]
    assert "broken.png" in named[0][0]


@pytest.mark.slow
def test_nine_tenths_of_slow_loading_is_hidden_behind_the_rollout(tiny_qwen, digits, tmp_path, monkeypatch):
    clock = Clock(monkeypatch, load_seconds=0.5, rollout_seconds=2)
    figures(tiny_qwen, digits.train, tmp_path, **RUN)
    print(f"hidden: {clock.hidden():.3f} of {len(clock.loads)} loads")
    assert clock.hidden() >= 0.9


@pytest.mark.slow
def test_the_same_figures_of_a_resumed_run(tiny_qwen, digits, tmp_path):
    """A run is resumed in the middle of an epoch, and in the middle of a generation batch."""
    dataset = rows_with_a_broken_image(digits, tmp_path, 5, broken=4)
    run = {**RUN, "num_train_epochs": 4, "save_strategy": "steps", "save_steps": 1, "num_iterations": 2}
    whole = {}
    for name, switches in (("off", OFF), ("on", {})):
        whole[name] = figures(tiny_qwen, dataset, tmp_path / name, switches, **run)
        saved = testing.newest_version(tmp_path / name) / "checkpoint-1"
        resumed = {"resume_from_checkpoint": str(saved), **run}
        whole[f"resumed, {name}"] = figures(tiny_qwen, dataset, tmp_path / "again", switches, **resumed)
    assert whole["on"] == whole["off"]
    assert whole["resumed, on"] == whole["resumed, off"]
    assert len(whole["resumed, on"]["loss"]) == RUN["max_steps"] - 1


@pytest.mark.slow
def test_ctrl_c_while_images_load_ends_the_run_and_its_threads(tiny_qwen, digits, tmp_path, monkeypatch):
    Clock(monkeypatch, load_seconds=0.5)
    roll = GRPOTrainer._generate_completions

    def interrupted(trainer, samples):
        if trainer.state.global_step:
            raise KeyboardInterrupt
        return roll(trainer, samples)

    monkeypatch.setattr(GRPOTrainer, "_generate_completions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        figures(tiny_qwen, digits.train, tmp_path, **RUN)
    for thread in threading.enumerate():
        if thread.name.startswith("swift-grpo-ext-images"):
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.two_ranks
def test_a_rank_that_loads_slowly_and_a_broken_image(tiny_qwen, digits, tmp_path):
    """Both ranks replace the same row by the same other one, however far apart they read."""
    dataset = rows_with_a_broken_image(digits, tmp_path, 9, broken=2)
    plugins = [REWARD, Path(__file__).with_name("slow_images.py"), plugin_file()]
    run = {**RUN, "per_device_train_batch_size": 4, "num_train_epochs": 4, "reward_funcs": "even_characters"}
    seen = []
    for name, switches in (("off", OFF), ("on", {"DISABLE": "callbacks.report"})):
        arguments = testing.grpo_arguments(
            tiny_qwen, dataset, tmp_path / name, external_plugins=plugins, **run
        )
        variables = {f"SWIFT_GRPO_EXT_{key}": value for key, value in switches.items()}
        tail = run_ranks("rlhf", arguments, variables, timeout=120).tail
        rows = [row for row in testing.read_logging(tmp_path / name) if "loss" in row]
        seen.append([[row[figure] for figure in FIGURES if figure in row] for row in rows])
        assert "broken.png" in tail
        assert "replaced by another row" in tail
    assert seen[0] == seen[1]
    assert len(seen[0]) == RUN["max_steps"]
