"""The code on the page "Write your own reward" runs, and uses public names alone."""

import re
import sys
from pathlib import Path

import swift_grpo_ext

PAGE = Path(__file__).parents[2] / "docs/rewards/write-your-own.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_composition_and_its_test_run():
    names: dict = {}
    for block in BLOCKS[:2]:
        exec(compile(block, PAGE.name, "exec"), names)
    assert len(BLOCKS[1].splitlines()) <= 10


def test_only_public_names_are_used():
    used = {name for block in BLOCKS for name in re.findall(r"from swift_grpo_ext import (\w+)", block)}
    assert used == {"get_reward"}
    assert used <= set(swift_grpo_ext.__all__)


def test_the_plugin_file_registers_a_limited_reward(tmp_path, monkeypatch):
    from swift.rewards import orms
    from swift.utils import import_external_file

    from swift_grpo_ext.rewards.runtime.scored import Scored

    monkeypatch.setattr("sys.path", [*sys.path])
    file = tmp_path / "my_own_rewards.py"
    file.write_text(BLOCKS[0] + BLOCKS[2], encoding="utf-8")
    try:
        import_external_file(str(file))
        reward = Scored(orms["box_if_format"](), "box_if_format")
        answer = "<think>left</think><answer>[0, 0, 10, 10]</answer>"
        assert reward([answer, ""], solution=[[0, 0, 10, 10]] * 2) == [1.0, 0.0]
        reward.pool.close()
    finally:
        orms.pop("box_if_format", None)
