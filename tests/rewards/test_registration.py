import subprocess
import sys

import pytest

from swift_grpo_ext.errors import RewardError, SettingsError
from swift_grpo_ext.rewards.catalogue import NAMES, all_rewards, get_reward
from swift_grpo_ext.rewards.registration import require_known


@pytest.fixture(scope="module")
def orms():
    from swift.rewards import orms

    from swift_grpo_ext import rewards

    assert rewards.register() == list(NAMES)
    return orms


def test_importing_the_room_loads_neither_torch_nor_the_host():
    script = "import sys, swift_grpo_ext.rewards.catalogue as c; c.all_rewards(); print(sorted({'torch', 'swift', 'scipy', 'sympy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_each_class_carries_the_rewards_name_for_the_hosts_metrics(orms):
    # A judge must be told which server to ask.
    assert [type(orms[name](args=None)).__name__ for name in NAMES[:-1]] == list(NAMES[:-1])
    assert [orms[name].__name__ for name in NAMES] == list(NAMES)
    with pytest.raises(SettingsError, match="ext_judge needs the parameter 'url'"):
        orms["ext_judge"](args=None)


@pytest.mark.parametrize(("typed", "nearest"), [("mine", "cosine"), ("iou", "ext_iou")])
def test_a_name_that_no_file_has_registered_is_told_how_to(orms, typed, nearest):
    """It may be a reward of the user's own, whose file forgot that line, whatever name is like it."""
    with pytest.raises(RewardError, match=rf"'{typed}' .* did you mean '{nearest}'\? .* orms\['{typed}'\] ="):
        require_known([typed])


def test_a_batch_is_scored_row_by_row(orms):
    completions = ["<answer>A</answer>", "<answer>B</answer>", "<answer>A</answer>"]
    scores = orms["ext_choice"]()(
        completions, solution=["A", "A", None], images=[[], [], []], trainer_state=None
    )
    assert scores == [1.0, 0.0, None]


def test_unknown_names_get_the_nearest():
    with pytest.raises(RewardError, match="did you mean 'ext_choice'"):
        get_reward("ext_choise")


@pytest.mark.parametrize("name", NAMES)
def test_rewards_travel_by_name(name):
    import pickle

    assert pickle.loads(pickle.dumps(get_reward(name))) is all_rewards()[name]
