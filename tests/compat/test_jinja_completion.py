"""``--template_backend jinja``: what was sampled is what is trained on, and equals the swift backend's run."""

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat.jinja_completion import sampled_tokens
from swift_grpo_ext.plugin_files import plugin_file

PATCH = "F21-jinja-completion"
REWARD = "tests/e2e/length_reward.py"


@pytest.fixture
def run(tiny_qwen, digits, tmp_path):
    swift_grpo_ext.register()

    def start(backend, **overrides):
        words = testing.grpo_arguments(
            tiny_qwen,
            digits.train,
            tmp_path / backend,
            external_plugins=[REWARD, plugin_file()],
            reward_funcs="even_characters",
            template_backend=backend,
            **overrides,
        )
        testing.run_in_process("rlhf", words)
        return [row for row in testing.read_logging(tmp_path / backend) if "loss" in row]

    return start


def test_before_nothing_is_learned(run, stock):
    assert all(row["grad_norm"] < 1e-3 for row in run("jinja", beta=0))


def test_both_backends_train_alike(run):
    for ours, other in zip(run("jinja"), run("swift"), strict=True):
        assert other["grad_norm"] > 1e-2
        for figure in ("loss", "grad_norm", "reward", "kl"):
            assert ours[figure] == pytest.approx(other[figure], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("text", None),
        (None, None),
        ([{"type": "text", "text": "a"}], None),
        ([1, 2], [(1, 1.0), (2, 1.0)]),
        ({"token_ids": [1, 2, 3], "loss_scale": [0, 1, 1]}, [(1, 0.0), (2, 1.0), (3, 1.0)]),
    ],
)
def test_sampled_tokens(content, tokens):
    assert sampled_tokens({"role": "assistant", "content": content}) == tokens
