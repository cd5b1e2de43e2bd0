"""Updates of every family, and of ways that runs take, on the made-up device: no tensor lies on the wrong one.

make test-device
"""

import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.testing.families import TINY

SCRIPT = Path(__file__).with_name("on_device.py")
WAYS = {
    "LoRA": ["tuner_type=lora"],
    "a trained tower": ["freeze_vit=false", "freeze_aligner=false"],
    "no checkpointing, no reference": ["checkpointing=false", "--beta", "0"],
    "GSPO": ["importance_sampling_level=sequence", "epsilon=0.0003"],
    "bnpo with entropies": ["loss_type=bnpo", "log_entropy=true"],
    "an entropy quantile": ["top_entropy_quantile=0.5"],
    "cispo": ["loss_type=cispo", "epsilon_high=5.0"],
    "KL in rewards": ["kl_in_reward=true", "advantage_estimator=rloo"],
    "micro-batches of two": ["per_device_train_batch_size=2", "gradient_accumulation_steps=4"],
    "two iterations": ["num_iterations=2"],
    "padding on the left": ["padding_side=left"],
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def runs(*words):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--group", "8", *words], capture_output=True, text=True, timeout=580
    )
    said = done.stdout + done.stderr
    assert "FIGURES " in said, said[-3000:]
    assert "self-check failed" not in said
    assert "first pass raised" not in said


@pytest.mark.parametrize("family", [name for name in sorted(TINY) if TINY[name].vision])
def test_a_family_stays_on_its_device(family):
    runs("--family", family)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_stays_on_its_device(way):
    runs(*WAYS[way])
