"""The loss `real` leaves a KL that is in the rewards out of the loss."""

from swift.rlhf_trainers import GRPOTrainer


def test_a_step_with_the_kl_in_rewards(grpo, monkeypatch):
    compute = GRPOTrainer._compute_loss_and_metrics

    def without_teacher(self, *args, **kwargs):  # ms-swift 4.6.0 thinks that every run has one
        self._has_teacher = False
        return compute(self, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_compute_loss_and_metrics", without_teacher)
    steps = grpo(max_steps=2, loss_type="real", advantage_estimator="rloo", beta=0.04)
    assert len(steps) == 2
