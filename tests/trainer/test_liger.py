"""--use_liger_kernel: liger's loss over our pass gives the figures of ms-swift's, with its kernels in the layers."""

import importlib.metadata
import sys

import pytest
import transformers
from safetensors.torch import load_file

from tests.group.stars import stars_of
from tests.trainer import liger_stand_in
from tests.trainer.runs import STOCK, figures, told

# The kernels inside layers need a GPU; that of the model's forward is plain PyTorch where there are no labels.
KERNELS = dict.fromkeys(("rope", "rms_norm", "layer_norm", "swiglu", "cross_entropy"), False)
SAVED = {"save_strategy": "steps", "save_steps": 2, "optim": "sgd", "learning_rate": 0.5}


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.lane)])
def liger(request, monkeypatch):
    """Arguments of a run with liger, of which a stand-in or the real one is there."""
    if request.param == "real":
        apply = transformers.trainer.apply_liger_kernel
        monkeypatch.setattr(
            transformers.trainer, "apply_liger_kernel", lambda model, _: apply(model, KERNELS)
        )
        return {"use_liger_kernel": True}
    version = importlib.metadata.version
    asked = lambda name: "0.8.5" if name == "liger-kernel" else version(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "version", asked)
    monkeypatch.setattr("swift.trainers.arguments.is_liger_available", lambda: True)
    monkeypatch.setattr(transformers.trainer, "apply_liger_kernel", lambda model, config: None)
    monkeypatch.setitem(sys.modules, "liger_kernel.chunked_loss", liger_stand_in)
    return {"use_liger_kernel": True}


def weights(output):
    (path,) = output.rglob("checkpoint-*/*.safetensors")
    return load_file(path)


@pytest.mark.parametrize(
    ("overrides", "cut"),
    [
        (
            {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
            "4 x 2 completions instead of",
        ),
        pytest.param(
            {"loss_type": "bnpo", "per_device_train_batch_size": 4, "temperature": 0.8},
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"num_iterations": 2, "max_steps": 4, "save_steps": 4, "beta": 0}, "", marks=pytest.mark.slow
        ),
    ],
    ids=["grpo, cut by groups", "bnpo", "two iterations"],
)
def test_the_loss_is_over_our_pass(tiny_qwen, digits, tmp_path, liger, overrides, cut, packs):
    overrides = {**SAVED, **liger, **overrides}
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK, **overrides)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours", **overrides)
    assert any(cut in message for message in messages)
    assert not any("self-check failed" in message for message in messages)
    assert packs
    assert all(len(span.completions) == 4 for pack in packs for span in stars_of(pack.layout))
    assert stock["grad_norm"]
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    theirs, own = weights(tmp_path / "stock"), weights(tmp_path / "ours")
    assert max(float((own[name] - theirs[name]).abs().max()) for name in theirs) < 2e-6


def test_what_is_divided_by_a_micro_batch_keeps_the_users_cut(tiny_qwen, digits, tmp_path, liger):
    overrides = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "loss_type": "bnpo"}
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, **overrides, **liger)
    assert any("micro-batches stay 1 x 4: loss_type bnpo" in message for message in messages)
