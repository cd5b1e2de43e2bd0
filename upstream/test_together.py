"""All patches at once: the patched host alone trains as the host does with our parts on.

`upstream/verify` runs this on a copy with all patches. The first run has our parts off by
``SWIFT_GRPO_EXT_DISABLE``, the second has them on.
"""

import pytest
from swift.rewards import ORM, orms

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file

FIGURES = ("loss", "grad_norm", "reward", "reward_std", "frac_reward_zero_std")
OFF = "compat,templates,trainer,rewards,callbacks"


class Patchy(ORM):
    """Varies over the gibberish of a random model; leaves one completion unscored, one is infinite."""

    def __call__(self, completions, **kwargs):
        scores = [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in completions]
        return [*scores[:-2], None, float("inf")]


@pytest.fixture(scope="module", params=["qwen", "ovis"])
def logs(request, tmp_path_factory, digits):
    model = request.getfixturevalue(f"tiny_{request.param}")
    folder = tmp_path_factory.mktemp("together")
    orms["patchy"] = Patchy
    found = {}
    for name, disabled in (("theirs", OFF), ("ours", "")):
        arguments = testing.grpo_arguments(
            model,
            digits.train,
            folder / name,
            external_plugins=plugin_file(),
            reward_funcs="patchy",
            per_device_train_batch_size=8,
            num_generations=8,
            beta=0,
            seed=1,
            max_steps=3,
        )
        testing.run_in_process("rlhf", arguments, {"SWIFT_GRPO_EXT_DISABLE": disabled})
        steps = [row for row in testing.read_logging(folder / name) if "loss" in row]
        found[name] = steps, [row["advantages"] for row in testing.read_completions(folder / name)]
    del orms["patchy"]
    return found


@pytest.mark.parametrize("figure", FIGURES)
def test_every_step_is_the_same(logs, figure):
    theirs, ours = ([row[figure] for row in logs[name][0]] for name in ("theirs", "ours"))
    assert len(theirs) == 3
    assert theirs == pytest.approx(ours, abs=1e-5, rel=1e-4)


def test_advantages_are_the_same(logs):
    assert logs["theirs"][1] == pytest.approx(logs["ours"][1], abs=1e-4)


def test_there_is_something_to_compare(logs):
    assert all(row["grad_norm"] > 0 for row in logs["theirs"][0])
