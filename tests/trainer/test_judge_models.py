"""Reward models of ms-swift that generate: their own engine is asked with messages and media alone."""

import pytest
from swift.rewards import rm_plugins
from swift.rewards.rm_plugin import GenRMPlugin

from swift_grpo_ext import testing
from swift_grpo_ext.testing.families import TINY
from tests.trainer.runs import figures

ROWS = []


class LengthOfVerdict(GenRMPlugin):
    """ms-swift's own judge, whose random words have no number: by how many there are."""

    def prepare_rm_inputs(self, inputs):
        ROWS.extend(inputs)
        return super().prepare_rm_inputs(inputs)

    def compute_rewards(self, results):
        assert super().compute_rewards(results) == [0.0] * len(results)
        self.request_config.max_tokens = 4
        return [len(result.choices[0].message.content) / 100 for result in results]


@pytest.mark.parametrize("judge", [pytest.param("llama", marks=pytest.mark.slow), "qwen2_5_vl"])
def test_a_judge_without_vllm_scores(judge, tiny_qwen, digits, tmp_path, monkeypatch):
    monkeypatch.setitem(rm_plugins, "genrm", LengthOfVerdict)
    ROWS.clear()
    model = testing.tiny_checkpoint(judge, tmp_path / "judge")
    names = dict(TINY[judge].host)
    found = figures(
        tiny_qwen,
        digits.train,
        tmp_path / "run",
        reward_model=model,
        reward_model_type=names.get("model_type", judge),
        reward_template=names.get("template", judge),
        reward_model_plugin="genrm",
        reward_funcs=None,
    )
    assert len(found["reward"]) >= 2
    assert all(reward > 0 for reward in found["reward"])
    assert all(norm > 0 for norm in found["grad_norm"])
    assert all("solution" in row for row in ROWS)  # the plugin itself reads any column
