"""Memory runs out: the step goes on in halves where it can, and the error names the setting where it cannot.

There is no GPU: torch.OutOfMemoryError is raised by a stand-in, for packs of more completions than "fit".
"""

import pytest
import torch
from safetensors.torch import load_file

from swift_grpo_ext.trainer import one_pass
from tests.group.stars import rows_in
from tests.trainer.runs import STOCK, told
from tests.trainer.runs import figures_in_double as figures

OVERRIDES = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "max_steps": 3,
    "optim": "sgd",
    "learning_rate": 0.5,
    "save_strategy": "steps",
    "save_steps": 3,
}


class Raising(torch.autograd.Function):
    """A backward pass that does not fit."""

    @staticmethod
    def forward(ctx, scores):
        return scores.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.fixture
def small_device(monkeypatch):
    """A device that has room for so many completions of a pack with gradients, from so many passes on."""

    def fits(completions, where="forward", after=0):
        whole, seen = one_pass.packed_scores, []

        def scores(model, head, inputs, pack, **options):
            found = whole(model, head, inputs, pack, **options)
            if not torch.is_grad_enabled():
                return found
            seen.append(pack)
            held = rows_in(pack)
            if held <= completions or len(seen) <= after:
                return found
            return Raising.apply(found if where == "backward" else Raising.backward(None, found))

        monkeypatch.setattr(one_pass, "packed_scores", scores)

    return fits


def weights(output):
    (path,) = output.rglob("checkpoint-*/*.safetensors")
    return load_file(path)


@pytest.fixture(scope="module")
def stock(tiny_qwen, digits, tmp_path_factory):
    """Figures and weights of ms-swift's passes in the user's cut."""
    output = tmp_path_factory.mktemp("stock")
    return figures(tiny_qwen, digits.train, output, STOCK, **OVERRIDES), weights(output)


@pytest.mark.parametrize(
    ("fitting", "where"),
    [(2, "forward"), (2, "backward"), pytest.param(1, "backward", marks=pytest.mark.slow)],
)
def test_the_step_goes_on_in_halves(tiny_qwen, digits, tmp_path, small_device, stock, fitting, where):
    small_device(fitting, where)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path, **OVERRIDES)
    lines = [message for message in messages if "out of memory" in message]
    assert len(lines) == 3 - fitting
    assert f"each micro-batch of 4 is now split into {4 // fitting} parts" in lines[-1]
    assert not any("self-check failed" in message for message in messages)
    expected, theirs = stock
    for name in expected:
        assert ours[name] == pytest.approx(expected[name], abs=2e-6, rel=2e-5), name
    own = weights(tmp_path)
    assert max(float((own[name] - theirs[name]).abs().max()) for name in theirs) < 2e-6


@pytest.mark.parametrize(("fitting", "after"), [(0, 0), (2, 3)], ids=["not one fits", "in a later step"])
def test_else_the_error_names_the_setting(tiny_qwen, digits, tmp_path, small_device, fitting, after):
    small_device(fitting, "backward", after)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"2.00 GiB[^$]*swift-grpo-ext: a micro-batch of 4"
    ) as caught:
        figures(tiny_qwen, digits.train, tmp_path, **OVERRIDES)
    last = str(caught.value).splitlines()[-1]
    smaller = (
        "SWIFT_GRPO_EXT_GROUP_BATCH=0 with --per_device_train_batch_size 2 --gradient_accumulation_steps"
    )
    assert (smaller in last) == bool(fitting)
    assert ("--max_completion_length" in last) == (not fitting)
