"""Losses over the tokens of a step, cut into micro-batches: the host's from 4.6 on, ours on 4.5."""

import pytest

from tests.trainer.runs import figures


@pytest.mark.parametrize("loss", ["dapo", "cispo"])
def test_the_gradient_does_not_depend_on_accumulation(tiny_qwen, digits, tmp_path, loss):
    """4.5 divides it by the number of micro-batches."""
    options = {"loss_type": loss, "seed": 1, "max_steps": 1}
    whole, cut = (
        figures(
            tiny_qwen,
            digits.train,
            tmp_path / f"{size}",
            **options,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
        )
        for size in (8, 2)
    )
    assert whole["grad_norm"][0] > 0
    assert cut["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-4)
    assert cut["loss"] == pytest.approx(whole["loss"], rel=1e-4, abs=1e-6)
