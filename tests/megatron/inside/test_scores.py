"""Rewards on several ranks: dynamic sampling, KL in rewards, completions that are not scored."""

from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext.megatron import scoring
from swift_grpo_ext.megatron.scoring import RankScoring
from swift_grpo_ext.trainer import baselines

GROUP = 4
# Four ranks with two completions each: 0 and 2 are the pipeline of one data-parallel rank, 1 and 3 of the other.
ORDER = [0, 2, 1, 3]


def in_order(values, each=2):
    """Values of completions in the order of their groups, as the ranks hold them, one rank after the other."""
    parts = [values[place * each : place * each + each] for place in range(len(ORDER))]
    return [value for rank in range(len(ORDER)) for value in parts[ORDER.index(rank)]]


@pytest.fixture
def ranks(monkeypatch):
    """A function that runs the scoring of one rank on batches of all; a batch is rewards in the order of groups."""

    def run(batches, rank, resamples=1, scale="group"):
        current = {"batch": 0, "rewards": torch.tensor(in_order(batches[0]))[:, None]}

        def samples_of(number):
            names = [f"{number}{place // GROUP}" for place in range(len(batches[number]))]
            return [SimpleNamespace(prompt_key=name) for name in in_order(names)]

        def own(values):
            return values[2 * rank : 2 * rank + 2]

        def everybodys(values):
            if values and isinstance(values[0], str):
                return [sample.prompt_key for sample in samples_of(current["batch"])]
            return samples_of(current["batch"])

        def fresh():
            current["batch"] += 1
            current["rewards"] = torch.tensor(in_order(batches[current["batch"]]))[:, None]
            return own(samples_of(current["batch"]))

        monkeypatch.setattr(scoring, "ranks_in_order", lambda host: ORDER)
        monkeypatch.setattr(scoring, "gather_object", everybodys)
        monkeypatch.setattr(baselines, "gather_object", everybodys)
        monkeypatch.setattr(scoring, "gather", lambda values: current["rewards"])
        host = SimpleNamespace(
            args=SimpleNamespace(generation_batch_size=8),
            model=torch.nn.Linear(1, 1),
            num_generations=GROUP,
            num_generations_eval=GROUP,
            max_resample_times=resamples,
            process_index=rank,
            world_size=4,
            device="cpu",
            dynamic_num_samples=False,
            reward_weights=torch.ones(1),
            reward_func_names=["made_up"],
            advantage_estimator="grpo",
            scale_rewards=scale,
            loss_type="grpo",
            beta=0.5,
            unwrapped_models=[torch.nn.Linear(1, 1)],
            _metrics={"train": baselines_metrics()},
            _logs={"advantages": [], "rewards": {"made_up": []}},
            _score_completions=lambda samples: own(current["rewards"]),
        )
        made = RankScoring(host, SimpleNamespace(baselines=None))
        return made, own(samples_of(0)), own(current["rewards"]), fresh

    return run


def baselines_metrics():
    from collections import defaultdict

    return defaultdict(list)


VARIED = [0.0, 1.0, 2.0, 3.0]
EQUAL = [0.1] * GROUP  # in single precision their deviation is 7e-9


def test_dynamic_sampling_judges_its_last_batch_and_cuts_whole_groups(ranks):
    batches = [VARIED + EQUAL, EQUAL + [5.0, 6.0, 7.0, 8.0]]
    found = {}
    for rank in range(4):
        made, samples, rewards, fresh = ranks(batches, rank)
        kept, scores = made.resampled(samples, rewards, fresh)
        found[rank] = [sample.prompt_key for sample in kept], scores[:, 0].tolist()
    assert found == {
        0: (["00", "00"], [0.0, 1.0]),
        2: (["00", "00"], [2.0, 3.0]),
        1: (["11", "11"], [5.0, 6.0]),
        3: (["11", "11"], [7.0, 8.0]),
    }


def test_dynamic_sampling_that_finds_too_few_takes_the_first_batch(ranks, said):
    made, samples, rewards, fresh = ranks([VARIED + EQUAL, EQUAL + EQUAL], 1)
    kept, scores = made.resampled(samples, rewards, fresh)
    assert kept is samples
    assert scores is rewards
    assert "4 of 8 completions are in groups whose rewards differ, after 1 new batches" in said[-1]


def test_an_evaluation_keeps_its_rows(ranks):
    made, samples, rewards, _ = ranks([EQUAL + EQUAL], 0)
    made._host.model.eval()
    kept, _ = made.resampled(samples, rewards, lambda: pytest.fail("drew rows of training"))
    assert kept is samples


def test_kl_is_taken_off_the_rewards(ranks):
    """Of a group of equal rewards the completion that is farthest from the reference is the worst."""
    made, samples, rewards, _ = ranks([EQUAL + EQUAL], 0, scale="none")
    kl = torch.tensor(in_order([0.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]))
    assert made.advantages(samples, rewards, (), kl).tolist() == [0.5, -0.5]
    assert made._host._metrics["train"]["kl"] == [0.5]


def test_rounding_is_no_advantage(ranks):
    made, samples, rewards, _ = ranks([EQUAL + VARIED], 0)
    assert made.advantages(samples, rewards, ()).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("loss", "unscored"), [("grpo", 0.0), ("real", float("nan"))])
def test_a_completion_that_is_not_scored_is_neither_label_of_real(ranks, loss, unscored, monkeypatch):
    made, samples, rewards, _ = ranks([[1.0, float("nan"), 0.0, 0.0] + VARIED], 0)
    made._host.loss_type = loss
    monkeypatch.setattr(scoring, "gather_over", lambda values, group: values)
    made._host._get_rollout_group = lambda: None
    batch = SimpleNamespace(completion_mask=torch.ones(2, 3, dtype=torch.bool))
    advantages = made.advantages(samples, rewards, [batch])
    assert batch.completion_mask.tolist() == [[True] * 3, [False] * 3]
    assert advantages[0] > 0
    assert advantages[1].item() == pytest.approx(unscored, nan_ok=True)
