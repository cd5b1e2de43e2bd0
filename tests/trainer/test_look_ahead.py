"""Images of the next generation batch are prepared while this one is sampled: same results, and nobody waits."""

import json
import threading
import time

import pytest

from swift_grpo_ext.models import images
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from swift_grpo_ext.trainer.rows import Rows
from tests.trainer.runs import figures, told

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


def test_a_broken_image_is_named_at_its_row_and_replaced(tiny_qwen, digits, tmp_path):
    rows = [json.loads(line) for line in digits.train.read_text().splitlines()[:5]]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    rows[2]["images"] = [str(broken)]
    dataset = tmp_path / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
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
