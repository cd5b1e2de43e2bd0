"""What each set of releases must do: import every module, train as ms-swift does, share, and check itself.

`make test-images` runs it on both sets that ms-swift recommends; the gate on their transformers alone.
"""

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.plugin_files import plugin_file

SAME = ("loss", "grad_norm", "kl", "reward", "reward_std")
ABSENT = ("megatron", "mcore_bridge", "ray", "zmq", "vllm")  # what a lane may lack, and single rooms need
MODULES = [
    module.name
    for module in pkgutil.walk_packages(swift_grpo_ext.__path__, "swift_grpo_ext.")
    if not module.name.endswith("__main__") and ".plugins" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_imported(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ABSENT:
            raise


@pytest.fixture(scope="module")
def folders(tiny_qwen_stock, digits, tmp_path_factory):
    """Of two real runs of four steps, ms-swift's and ours: output folders, by name, and what ours printed."""
    folder = tmp_path_factory.mktemp("images")
    printed = ""
    rewards = Path(__file__).parent / "e2e/length_reward.py"
    # With transformers 4 ms-swift's own rollouts stop at their second token (F47): that fix alone is on.
    needed = [] if DEFECTS["F47"].absent_because() else [plugin_file("compat")]
    for name, plugins in (("stock", [rewards, *needed]), ("ours", [rewards, plugin_file()])):
        arguments = testing.grpo_arguments(
            tiny_qwen_stock,
            digits.train,
            folder / name,
            external_plugins=plugins,
            reward_funcs="even_characters",
            max_steps=4,
        )
        printed = testing.run_swift("rlhf", arguments, timeout=280).tail
    return {"stock": folder / "stock", "ours": folder / "ours", "printed": printed}


def test_every_step_of_swift_rlhf_is_that_of_ms_swift(folders):
    stock, ours = (
        [[row[name] for name in SAME] for row in testing.read_logging(folders[of]) if "loss" in row]
        for of in ("stock", "ours")
    )
    assert len(stock) == len(ours) == 4
    for theirs, row in zip(stock, ours, strict=True):
        assert row == pytest.approx(theirs, abs=1e-5, rel=1e-5)
        assert theirs[SAME.index("grad_norm")] > 0
    assert any(row[SAME.index("reward_std")] > 0 for row in stock)


def test_what_a_group_shares_is_computed_once(folders):
    """A self-check that fails, and a batch that cannot be shared, turn it off or say so."""
    (file,) = folders["ours"].rglob("gains.json")
    gains = json.loads(file.read_text())["gains"]
    off = {name: gain for name, gain in gains.items() if gain["state"] != "on"}
    assert not {"shared_prefix", "vision_once", "chunked_logps", "shared_prefill", "self_check"} & set(off), (
        off
    )
    assert "once for each completion" not in folders["printed"]
    assert "self-check failed" not in folders["printed"]
