"""Dynamic sampling where a multi-turn server returns more completions than it was asked for."""

from types import SimpleNamespace

import pytest
import torch

from swift_grpo_ext.trainer import rollout as resampling
from swift_grpo_ext.trainer.rollout import resampled

# Of each batch the completions of both ranks, and whether there are more of them than requests.
BATCHES = [([["a", "a", "a"], ["a", "a"]], True), ([["b", "c"], ["d", "e"]], False)]


def rank(number, batches, monkeypatch):
    """What dynamic sampling returns on one of two ranks; completions "a" have equal rewards."""
    current = {"batch": 0}

    def everybodys():
        return [one for part in batches[current["batch"]][0] for one in part]

    def roll_out(inputs):
        current["batch"] += 1
        completions, trainer.dynamic_num_samples = batches[current["batch"]]
        return completions[number]

    def rewards(samples):
        return torch.tensor([[float(ord(one))] for one in everybodys()])

    trainer = SimpleNamespace(
        args=SimpleNamespace(generation_batch_size=4),
        accelerator=SimpleNamespace(process_index=number, num_processes=2),
        max_resample_times=1,
        dynamic_num_samples=batches[0][1],
        dynamic_resample_iterator=iter("x"),
        compute_std=lambda samples, rewards: rewards[:, 0] - ord("a"),
        _rollout_samples=roll_out,
        _compute_rewards_per_func=rewards,
    )
    monkeypatch.setattr(resampling, "gather_object", lambda samples: everybodys())
    found = resampled(trainer, batches[0][0][number], rewards(None))
    return *found, trainer


@pytest.mark.parametrize("batches", [BATCHES, [BATCHES[0], ([["b", "c", "d"], ["e", "f"]], True)]])
def test_ranks_share_what_is_found_evenly(batches, monkeypatch):
    """Each completion is on one rank, in the order of the rewards."""
    results = [rank(number, batches, monkeypatch) for number in (0, 1)]
    assert [samples for samples, _, _ in results] == [["b", "c"], ["d", "e"]]
    for _, rewards, trainer in results:
        assert [chr(int(one)) for one in rewards[:, 0]] == ["b", "c", "d", "e"]
        assert trainer.dynamic_num_samples, "groups are told by their prompts, not by their size"


def test_the_first_batch_is_taken_as_it_was(monkeypatch):
    batches = [BATCHES[0], ([["a", "a"], ["a", "a"]], False)]
    samples, rewards, trainer = rank(1, batches, monkeypatch)
    assert (samples, len(rewards)) == (["a", "a"], 5)
    assert trainer.dynamic_num_samples
