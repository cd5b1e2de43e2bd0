"""Losses over the tokens of a step, cut into micro-batches: the host's from 4.6 on, ours on 4.5."""

from types import SimpleNamespace

import pytest
import torch
import transformers
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext import testing
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.trainer.loss_fixes import reduced_once
from tests.conftest import built_once
from tests.trainer.runs import figures_in_double as figures
from tests.trainer.runs import mixed_rows


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


@pytest.mark.parametrize(
    "loss",
    [
        "grpo",
        "dapo",
        pytest.param("cispo", marks=pytest.mark.slow),
        pytest.param("fipo", marks=pytest.mark.slow),
    ],
)
def test_chunks_give_the_loss_of_the_whole(shared_folder, digits, tmp_path, monkeypatch, loss):
    """A micro-batch with more rows than its size, which some rollouts return; three chunks gave a third."""
    model = built_once(shared_folder / "tiny_llama", lambda folder: testing.tiny_checkpoint("llama", folder))
    rows = mixed_rows(digits, shared_folder / "mixed_0.jsonl", 0)
    options = {"loss_type": loss, "seed": 1, "max_steps": 1, "per_device_train_batch_size": 8}
    options |= TINY["llama"].host
    whole = figures(model, rows, tmp_path / "whole", **options)
    compute = HostGRPOTrainer._compute_loss

    def in_chunks(trainer, *args, **kwargs):
        size = swapped(trainer.args, "per_device_train_batch_size", 3)
        with size, swapped(trainer, "dynamic_num_samples", True):
            return compute(trainer, *args, **kwargs)

    monkeypatch.setattr(HostGRPOTrainer, "_compute_loss", in_chunks)
    chunks = figures(model, rows, tmp_path / "chunks", **options)
    assert whole["grad_norm"][0] > 0
    assert chunks["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-4)
    assert chunks["loss"] == pytest.approx(whole["loss"], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("several", "sharded", "times"),
    [
        ({"dynamic_num_samples": True}, True, 1),
        ({"chord_sft_iterator": iter(())}, True, 1),
        ({}, True, 2),
        ({"dynamic_num_samples": True}, False, 2),
    ],
)
def test_a_gradient_of_several_passes_comes_in_one_piece(several, sharded, times):
    """DeepSpeed reduces a parameter where its gradient comes; it comes once for each reentrant checkpoint."""
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    host = SimpleNamespace(
        dynamic_num_samples=False,
        chord_sft_iterator=None,
        is_deepspeed_enabled=sharded,
        is_fsdp_enabled=False,
    )
    vars(host).update(several)
    came = []
    weight = model.model.layers[0].mlp.down_proj.weight
    weight.register_post_accumulate_grad_hook(lambda _: came.append(1))
    with reduced_once(host, model):
        logits = [model(torch.tensor([tokens])).logits for tokens in ([1, 2, 3], [4, 5])]
    sum(chunk.float().logsumexp(-1).sum() for chunk in logits).backward()
    assert len(came) == times


@pytest.mark.parametrize("estimator", ["rloo", pytest.param("reinforce_plus_plus", marks=pytest.mark.slow)])
def test_real_trains_with_the_kl_in_rewards(tiny_qwen, digits, tmp_path, estimator):
    """ms-swift ends in the first step. At the start the KL is 0, so that it is the step without one."""
    options = {"loss_type": "real", "advantage_estimator": estimator, "max_steps": 2, "learning_rate": 1e-2}
    found, without = (
        figures(tiny_qwen, digits.train, tmp_path / f"{beta}", **options, beta=beta) for beta in (0.04, 0)
    )
    assert found["loss"][0] == pytest.approx(without["loss"][0], rel=1e-9)
    assert len(found["loss"]) == 2
    assert all(norm > 0 for norm in found["grad_norm"])
