"""The loss of a micro-batch is the same in one piece and in chunks."""

import json

import pytest
from swift.rlhf_trainers import GRPOTrainer


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "cispo"])
def test_chunks_give_the_loss_of_the_whole(grpo, reward, monkeypatch, tmp_path, loss_type):
    rows = [{"messages": [{"role": "user", "content": f"What is number {n}?"}]} for n in range(8)]
    dataset = tmp_path / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def number(completions, **columns):
        return [float(row % 3) for row in range(len(completions))]

    run = {"loss_type": loss_type, "reward_funcs": reward(number), "max_steps": 1}
    run |= {"per_device_train_batch_size": 8, "num_generations": 4, "dataset": dataset}
    (whole,) = grpo(**run)
    original = GRPOTrainer._compute_loss

    def in_chunks(trainer, *args, **kwargs):
        size, trainer.args.per_device_train_batch_size = trainer.args.per_device_train_batch_size, 3
        trainer.dynamic_num_samples = True
        try:
            return original(trainer, *args, **kwargs)
        finally:
            trainer.args.per_device_train_batch_size, trainer.dynamic_num_samples = size, False

    monkeypatch.setattr(GRPOTrainer, "_compute_loss", in_chunks)
    (chunks,) = grpo(**run)
    assert whole["grad_norm"] > 0
    assert chunks["grad_norm"] / whole["grad_norm"] == pytest.approx(1, rel=1e-3)
