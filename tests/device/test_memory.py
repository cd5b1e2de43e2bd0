"""Bytes of whole updates in 16 bits on the made-up device lie in the range that `plan` and `check` reckon with.

Weights, states, gradients, images and activations, of ms-swift's trainer and of ours; no context, and no fragments.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from swift_grpo_ext.doctor.plan.memory import memory_range
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of

SCRIPT = Path(__file__).with_name("on_device.py")
IMAGE, QUESTION, COMPLETION, GROUP = 144, 42, 64, 8  # tokens of each, and completions of a prompt
WORDS = (
    *("--mini", "--config", "--updates", "2", "--group", str(GROUP)),
    *("--tokens", str(IMAGE), str(QUESTION), str(COMPLETION)),
    *("torch_dtype=bfloat16", "bf16=true", "gradient_accumulation_steps=2"),
)
ABSENT = ("CUDA context", "fragments")
WAYS = {
    "full": (["--stock"], {}, {}),
    "LoRA": (["--stock", "tuner_type=lora"], {"full": False}, {}),
    "ours, full": ([], {}, {}),
    "ours, LoRA": (["tuner_type=lora"], {"full": False}, {}),
    "ours, without checkpointing": (["checkpointing=false"], {}, {"checkpointing": False}),
    "ours, without a reference": (["--beta", "0"], {"kl": False}, {}),
    "ours, a trained tower": (["freeze_vit=false"], {"freeze_vit": False}, {}),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_an_update_takes_what_the_plan_says(way):
    words, work, setting = WAYS[way]
    command = [sys.executable, str(SCRIPT), *WORDS, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    found = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in done.stdout.splitlines() if " " in line}
    assert "FIGURES" in found, (done.stdout + done.stderr)[-3000:]
    first, last = json.loads(found["FIGURES"])
    shares = {} if "--stock" in words else {"shared": GROUP, "scoring": "chunks"}
    needed = memory_range(
        shape_of(json.loads(found["CONFIG"])),
        Work(
            **{"full": True, **work},
            generations=GROUP,
            text_tokens=QUESTION,
            max_pixels=IMAGE * 28 * 28,
            completion_tokens=COMPLETION,
        ),
        Setting(stage=0, rollout="server", micro_batch=GROUP, accumulation=2, **shares, **setting),
        Machine(gpus_per_node=1),
    )
    passes = max(peak for phase, peak in last["peaks"].items() if phase != "optimizer")
    for phase, peak in (("update", passes), ("step", first["peaks"]["optimizer"])):
        terms = [term for term in needed.phases[phase] if term.name not in ABSENT]
        low, high = (sum(getattr(term, end) for term in terms) for end in ("low", "high"))
        print(f"{phase}: {peak / 1e6:.0f} MB, planned {low / 1e6:.0f} to {high / 1e6:.0f}")
        assert low <= peak <= high, phase
