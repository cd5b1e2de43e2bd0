"""The host's --deepspeed flag takes our preset names, and parameters move on two ranks."""

from pathlib import Path

import pytest
from safetensors.torch import load_file

from swift_grpo_ext import testing
from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.plugin_files import plugin_file
from tests.asserted_modes import asserting_mode

HERE = Path(__file__).parent
# One runs with every `make test`; each takes half a minute.
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in presets.available() if name != "ext_zero2"]


def largest_change(before: Path, after: Path) -> dict[str, float]:
    """Largest change of each weight that both checkpoints have."""
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    assert set(old) & set(new)
    return {name: (old[name] - new[name]).abs().max().item() for name in set(old) & set(new)}


@pytest.mark.timeout(600)  # DeepSpeed compiles its CPU kernels at the first use
@pytest.mark.two_ranks
@pytest.mark.parametrize("preset", ["ext_zero2", *SLOW])
def test_two_ranks_train_with_a_preset(preset, tiny_qwen, digits, tmp_path):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        reward_funcs="even_characters",
        external_plugins=[HERE / "gloo_for_zero3.py", plugin_file(), HERE / "length_reward.py"],
        deepspeed=preset,
        gradient_accumulation_steps=2,
        save_strategy="steps",
        save_steps=2,
        save_only_model=True,
    )
    words, mode = asserting_mode(arguments, ranks=2)
    assert mode == {"MODE": f"zero{presets.load(preset)['zero_optimization']['stage']}"}
    testing.run_swift("rlhf", words, mode, ranks=2, timeout=560)
    rows = [row for row in testing.read_logging(tmp_path) if "loss" in row]
    assert len(rows) == 2
    assert all(row["grad_norm"] > 0 for row in rows)
    assert all(row["watch/moved"] > 0.9 and row["watch/master_moved"] > 0.9 for row in rows)
    changes = largest_change(tiny_qwen, testing.newest_version(tmp_path) / "checkpoint-2")
    language = [change for name, change in changes.items() if "visual" not in name]
    frozen = [change for name, change in changes.items() if "visual" in name]
    assert sum(change > 0 for change in language) > 0.9 * len(language)
    assert frozen
    assert max(frozen) == 0
