"""Scores that are missing, infinite or of the wrong number, in real runs of the host with our trainer."""

import math
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file
from swift.rewards import ORM, orms
from swift.rlhf_trainers import grpo_trainer

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RewardError


class Scripted(ORM):
    """Scores by a completion's place in the batch."""

    script: tuple[float | None, ...] = ()

    def __call__(self, completions, **kwargs):
        return [self.script[row % len(self.script)] for row in range(len(completions))]


class AsyncScripted(Scripted):
    async def __call__(self, completions, **kwargs):
        return super().__call__(completions, **kwargs)


@pytest.fixture
def train(tiny_qwen, digits, tmp_path, monkeypatch):
    """Run GRPO with a scripted reward; returns the logged steps, the completions and the folder."""

    def run(script, reward=Scripted, ends=None, **overrides):
        monkeypatch.setitem(orms, "scripted", type("Scripted", (reward,), {"script": script}))
        output = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        # Seed 1 samples no placeholder token, which crashes the host's template.
        arguments = {
            "seed": 1,
            "reward_funcs": "scripted",
            "warmup_ratio": 0,
            "lr_scheduler_type": "constant",
            **overrides,
        }
        with ends or nullcontext():
            testing.run_in_process(
                "rlhf", testing.grpo_arguments(tiny_qwen, digits.train, output, **arguments)
            )
        steps = [record for record in testing.read_logging(output) if "loss" in record]
        return steps, testing.read_completions(output), testing.newest_version(output)

    return run


def moved(model, folder):
    """Largest change of any parameter between a checkpoint folder and a run's last checkpoint."""
    before = load_file(model / "model.safetensors")
    after = load_file(sorted(folder.glob("checkpoint-*"))[-1] / "model.safetensors")
    return max(float((after[name] - tensor).abs().max()) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("reward", "value"),
    [
        (Scripted, -1.0),
        (AsyncScripted, 1.0),
        pytest.param(Scripted, 1.0, marks=pytest.mark.slow),
        pytest.param(AsyncScripted, -1.0, marks=pytest.mark.slow),
    ],
)
def test_an_unscored_completion_has_no_advantage(train, value, reward):
    steps, completions, _ = train((value, value, value, None), reward)
    assert [row["advantages"] for row in completions] == [0.0] * 8
    assert [row["scripted"] for row in completions[:4]] == [value, value, value, None]
    for step in steps:
        assert step["reward"] == value
        assert step["reward_coverage"] == 0.75
        assert step["unscored/scripted"] == 0.25
        assert step["dropped_groups"] == 0
        assert step["frac_reward_zero_std"] == 1


def test_the_scored_are_compared_with_each_other(train):
    _, completions, _ = train((1.0, 0.0, None, None), beta=0)
    advantages = [row["advantages"] for row in completions[:4]]
    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert advantages == pytest.approx([expected, -expected, 0, 0], rel=1e-5)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_one_infinite_reward_and_parameters_still_move(train, tiny_qwen, value, caplog):
    steps, completions, folder = train((0.0, 1.0, 0.5, value), save_strategy="steps", save_steps=2)
    assert all(step["grad_norm"] > 0 for step in steps)
    assert completions[3]["advantages"] == 0
    assert moved(tiny_qwen, folder) > 1e-5


class ScoredAtFirst(Scripted):
    """Scores the whole group in the first step and one completion afterwards."""

    def __call__(self, completions, trainer_state, **kwargs):
        scores = super().__call__(completions)
        return scores if trainer_state.global_step == 0 else [1.0] + [None] * (len(scores) - 1)


def test_a_group_without_two_scores_gives_no_gradient(train):
    """Not by the KL term either, which pulls at every completion once the policy has moved."""
    steps, _, _ = train((1.0, 0.0, 0.5, 0.0), ScoredAtFirst, beta=0.5, max_steps=3)
    assert [step["dropped_groups"] for step in steps] == [0, 1, 1]
    assert steps[0]["grad_norm"] > 0
    assert [step["grad_norm"] for step in steps[1:]] == [0, 0]
    assert [step["reward_coverage"] for step in steps] == [1, 0.25, 0.25]
    assert "kl" not in steps[1], "a mean over no token"


def test_completions_are_json_although_one_has_no_entropy(train):
    _, _, folder = train((1.0, 0.0, None, 0.5), log_entropy=True, max_steps=1)
    text = (folder / "completions.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert [row["entropy"] is None for row in testing.read_completions(folder)] == [False, False, True, False]


def test_an_evaluation_of_one_completion_per_prompt_still_has_its_figures(train, digits):
    """There is nothing to compare it with, but KL and entropy need no comparison."""
    _, _, folder = train(
        (1.0, 0.0),
        max_steps=1,
        log_entropy=True,
        val_dataset=digits.test,
        eval_strategy="steps",
        eval_steps=1,
        num_generations_eval=1,
    )
    (row,) = [row for row in testing.read_logging(folder) if "eval_loss" in row]
    assert row["eval_kl"] > 0
    assert row["eval_loss"] == pytest.approx(0.04 * row["eval_kl"], rel=0.05)
    assert row["eval_entropy/mean"] > 0
    assert {row["split"] for row in testing.read_completions(folder)} == {"train", "eval"}


def test_the_log_has_no_nan_when_nothing_is_scored(train):
    steps, _, _ = train((None,), ends=pytest.raises(SystemExit, match="65"))  # a run that scored nothing
    assert steps
    for step in steps:
        assert all(math.isfinite(value) for value in step.values() if isinstance(value, float))
        assert step["reward_coverage"] == 0
        assert "reward" not in step


def test_one_score_for_all_completions_is_refused(train, monkeypatch):
    class Mean(ORM):
        def __call__(self, completions, **kwargs):
            return [0.5]

    monkeypatch.setitem(orms, "mean", Mean)
    with pytest.raises(RewardError) as caught:
        train((0.0,), reward_funcs="mean")
    message = str(caught.value)
    assert message.startswith(
        "swift-grpo-ext: reward 'mean' returned 1 scores for 4 completions -> return a list with one number "
    )
    assert "(https://swift.readthedocs.io/" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("scale", "estimator"),
    [
        ("batch", "rloo"),
        pytest.param("gdpo", "grpo", marks=pytest.mark.slow),
        pytest.param("none", "reinforce_plus_plus", marks=pytest.mark.slow),
    ],
)
def test_other_modes_of_the_host(train, scale, estimator):
    steps, completions, _ = train(
        (0.0, 1.0, None, 0.25), scale_rewards=scale, advantage_estimator=estimator, max_steps=1
    )
    assert steps[0]["grad_norm"] > 0
    advantages = torch.tensor([row["advantages"] for row in completions])
    assert advantages[2] == 0
    assert advantages.count_nonzero() == 3


def test_real_takes_no_unscored_completion_for_a_negative_one(train):
    """On-policy every score of REAL is 0: log(1 + negatives) + log(1 + positives)."""
    steps, completions, _ = train((1.0, 0.0, None, 0.0), loss_type="real", beta=0, max_steps=1)
    assert steps[0]["loss"] == pytest.approx(math.log(1 + 2) + math.log(1 + 1), abs=1e-5)
    assert steps[0]["grad_norm"] > 0
    assert completions[2]["advantages"] == 0


def test_real_takes_no_overlong_completion_for_a_negative_one(train, monkeypatch):
    """What the filter takes out of the loss has no label, whatever its score."""
    collate = grpo_trainer.collate_to_grpo_micro_batch

    def third_is_cut(*args, **kwargs):
        inputs, batch = collate(*args, **kwargs)
        batch.truncated_mask = torch.tensor([False, False, True, False])
        return inputs, batch

    monkeypatch.setattr(grpo_trainer, "collate_to_grpo_micro_batch", third_is_cut)
    steps, _, _ = train((1.0, 0.0, 1.0, 0.0), loss_type="real", overlong_filter=True, beta=0, max_steps=1)
    assert steps[0]["loss"] == pytest.approx(math.log(1 + 2) + math.log(1 + 1), abs=1e-5)


@pytest.mark.slow
def test_real_is_evaluated_by_the_groups_of_the_evaluation(train, digits):
    """The host cuts an evaluation batch into groups of the training's size, and crashes if it has none."""
    _, _, folder = train(
        (1.0, 0.0),
        loss_type="real",
        beta=0,
        max_steps=1,
        learning_rate=0,
        val_dataset=digits.test,
        eval_strategy="steps",
        eval_steps=1,
        num_generations_eval=2,
        per_device_eval_batch_size=2,
    )
    losses = [row["eval_loss"] for row in testing.read_logging(folder) if "eval_loss" in row]
    assert losses == pytest.approx([2 * math.log(2)], abs=1e-5)


def test_kl_in_reward(train):
    steps, completions, _ = train((0.0, 1.0, None, 0.25), kl_in_reward=True, max_steps=2)
    assert all(math.isfinite(step["kl"]) for step in steps)
    assert completions[2]["advantages"] == 0


def test_dynamic_sampling_passes_over_groups_that_cannot_be_compared(train):
    """Groups in which only one is scored are resampled; with the host's rule None makes a deviation."""
    _, completions, _ = train(
        (1.0, None, 1.0, 1.0, 0.0, 1.0, None, 0.5),
        dynamic_sample=True,
        max_resample_times=3,
        per_device_train_batch_size=8,
        max_steps=1,
    )
    scores = [row["scripted"] for row in completions]
    assert scores == [0.0, 1.0, None, 0.5] * 2


class EqualAtFirst(Scripted):
    """Equal rewards until a number of batches has been scored; then they differ."""

    equal = 1

    def __call__(self, completions, **kwargs):
        self.equal -= 1
        return [1.0] * len(completions) if self.equal >= 0 else super().__call__(completions)


@pytest.mark.parametrize(("equal", "found"), [(1, True), pytest.param(2, False, marks=pytest.mark.slow)])
def test_dynamic_sampling_looks_at_its_last_try(train, equal, found):
    """The host's does not, so that one try is none."""
    reward = type("EqualAtFirst", (EqualAtFirst,), {"equal": equal})
    _, completions, _ = train((0.0, 1.0), reward, dynamic_sample=True, max_resample_times=1, max_steps=1)
    assert [row["scripted"] for row in completions] == ([0.0, 1.0, 0.0, 1.0] if found else [1.0] * 4)
