"""Faults of the stock stack under Megatron: they show without a fix of ours, and are gone with it."""

import subprocess

import pytest

from tests.megatron.comparing import (
    GRADIENT,
    assert_equal,
    gradient_differences,
    log_prob_difference,
)
from tests.megatron.runs import FIXES, PROJECT, Order, RunError, train_all, train_megatron
from tests.megatron.table import FROZEN, OURS, PIPELINE, SEQUENCE, TENSOR

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]


def both(python, model, rows, folder, ranks=2, **arguments):
    """Runs without our fixes, and with them."""
    orders = [
        Order(model, rows, folder / "stock", arguments),
        Order(model, rows, folder / "fixed", {**arguments, **FIXES}),
    ]
    return train_all(python, orders, ranks)


def asked(python, expression):
    """What the environment with Megatron says of its releases."""
    words = (
        "from swift_grpo_ext.defects import DEFECTS; from swift_grpo_ext.versions import installed_version; "
    )
    command = [python, "-c", f"{words}print({expression})"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()


def shows(python, defect):
    """Whether they have a defect."""
    return asked(python, f"DEFECTS['{defect}'].harms()") == "True"


def test_m1_the_norm_of_the_gradient(python, tiny, four_rows, reference, tmp_path):
    stock, fixed = both(python, tiny("qwen2_5_vl"), four_rows, tmp_path, **TENSOR)
    assert_equal(fixed, reference())
    if not shows(python, "M1"):
        assert_equal(stock, reference())
        return
    assert max(gradient_differences(stock.gradients[0], reference().gradients[0]).values()) < 1e-5
    assert stock.logs[0]["grad_norm"] < 0.99 * reference().logs[0]["grad_norm"]


def test_m1_with_an_output_layer_of_its_own(python, tiny, four_rows, reference, tmp_path):
    """Here the switch that repairs the embedding alone does not."""
    options = {**SEQUENCE, **FROZEN, "micro_batch_size": 2, "expert_tensor_parallel_size": 2}
    stock, fixed = both(python, tiny("qwen3_vl_moe"), four_rows, tmp_path, **options)
    expected = reference("qwen3_vl_moe", **FROZEN)
    assert_equal(fixed, expected)
    if shows(python, "M1"):
        assert stock.logs[0]["grad_norm"] < 0.99 * expected.logs[0]["grad_norm"]
    else:
        assert_equal(stock, expected)


def test_m2_before_the_first_step_stops(python, tiny, four_rows, tmp_path):
    with pytest.raises(RunError, match="must match the existing size"):
        train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks=2, **SEQUENCE)


def test_m2_micro_batches_of_four(python, tiny, four_rows, reference, tmp_path):
    run = train_megatron(python, tiny("qwen2_5_vl"), four_rows, tmp_path, ranks=2, **SEQUENCE, **FIXES)
    assert run.mode["sequence_parallel"]
    assert_equal(run, reference())


def test_m3_experts_without_expert_parallelism(python, tiny, four_rows, reference, tmp_path):
    options = {**SEQUENCE, **FROZEN, "micro_batch_size": 2}
    stock, fixed = both(python, tiny("qwen3_vl_moe"), four_rows, tmp_path, **options)
    assert (fixed.mode["tp"], fixed.mode["ep"], fixed.mode["etp"]) == (2, 1, 1)
    expected = reference("qwen3_vl_moe", **FROZEN)
    assert_equal(fixed, expected)
    if not shows(python, "M3"):
        assert_equal(stock, expected)
        return
    differences = gradient_differences(stock.gradients[0], expected.gradients[0])
    wrong = {name for name, share in differences.items() if share > GRADIENT}
    assert wrong == {name for name in differences if ".experts." in name}


def test_m3_experts_on_ranks_of_their_own_are_left_as_they_are(python, tiny, four_rows, reference, tmp_path):
    options = {**SEQUENCE, **FROZEN, **FIXES, "expert_model_parallel_size": 2}
    run = train_megatron(python, tiny("qwen3_vl_moe"), four_rows, tmp_path, ranks=2, **options)
    assert run.mode["ep"] == 2
    assert_equal(run, reference("qwen3_vl_moe", **FROZEN))


def test_m5_the_deepstack_of_a_trained_tower(python, tiny, four_rows, reference, tmp_path):
    options = {**SEQUENCE, "micro_batch_size": 2}
    stock, fixed = both(python, tiny("qwen3_vl"), four_rows, tmp_path, **options)
    expected = reference("qwen3_vl")
    differences = gradient_differences(stock.gradients[0], expected.gradients[0])
    assert all(share > 0.1 for name, share in differences.items() if "deepstack_merger" in name)
    assert_equal(fixed, expected)


@pytest.mark.parametrize("layout", [TENSOR, SEQUENCE], ids=["tensor", "sequence"])
def test_m7_the_norms_of_gated_delta_nets(layout, python, tiny, four_rows, reference, tmp_path):
    options = {**layout, "micro_batch_size": 2}
    stock, fixed = both(python, tiny("qwen3_5"), four_rows, tmp_path, **options)
    expected = reference("qwen3_5")
    assert_equal(fixed, expected)
    if layout is SEQUENCE and asked(python, "installed_version('mcore-bridge')") == "1.6.0":
        assert_equal(stock, expected)  # it does not gather the sequence itself
        return
    differences = gradient_differences(stock.gradients[0], expected.gradients[0])
    wrong = {name.rpartition(".layers.")[2] for name, share in differences.items() if share > 0.5}
    norms = "input_layernorm.weight" if layout is SEQUENCE else "linear_attn.norm.weight"
    assert wrong
    assert all(name.endswith(norms) for name in wrong)


@pytest.mark.parametrize("layout", [{}, {**SEQUENCE, "micro_batch_size": 2}], ids=["one rank", "sequence"])
def test_m8_the_deepstack_of_padded_rows(layout, python, tiny, mixed_rows, reference, tmp_path):
    """Rows with different numbers of images, so that every token of an image is in a place of its own."""
    options = {**layout, **FROZEN, "padding_free": False}
    ranks = layout.get("tensor_model_parallel_size", 1)
    stock, fixed = both(python, tiny("qwen3_vl"), mixed_rows, tmp_path, ranks, **options)
    expected = reference("qwen3_vl", "mixed", **FROZEN)
    assert log_prob_difference(stock.samples[0], expected.samples[0]) > 1e-3
    assert_equal(fixed, expected)


def test_m10_the_kl_in_rewards_with_a_pipeline(python, tiny, four_rows, tmp_path):
    """The estimator has it by default."""
    model, options = tiny("qwen2_5_vl"), {"advantage_estimator": "reinforce_plus_plus"}
    with pytest.raises(RunError, match="unsupported operand type"):
        train_megatron(python, model, four_rows, tmp_path / "stock", ranks=2, **PIPELINE, **options)
    expected = train_megatron(python, model, four_rows, tmp_path / "one", **FIXES, **options)
    both = [
        Order(model, four_rows, tmp_path / "fixed", {**PIPELINE, **options, **FIXES}),
        Order(model, four_rows, tmp_path / "ours", {**PIPELINE, **options, "external_plugins": [OURS]}),
    ]
    for run in train_all(python, both, ranks=2):
        assert run.mode["pp"] == 2
        assert len(run.logs) == len(expected.logs) == 3
        # Advantages have the KL in them, and with it the rounding of log-probs: completions cannot be told by them.
        for ours, theirs in zip(run.gradients, expected.gradients, strict=True):
            assert max(gradient_differences(ours, theirs).values()) <= GRADIENT
        for name in ("loss", "grad_norm", "kl", "reward"):
            ours, theirs = ([log[name] for log in logs] for logs in (run.logs, expected.logs))
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
