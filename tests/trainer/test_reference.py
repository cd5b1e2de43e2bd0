"""The reference is the policy at its start: with every tuner, resumed or not, and the first kl is 0."""

from copy import deepcopy

import pytest
import torch
from pairs.cases import cut
from sweep import inputs
from sweep.table import Configuration
from sweep.test_ranks import steps
from swift.tuner_plugin import PeftTuner, tuners_map

from swift_grpo_ext import testing
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.trainer import grpo, reference
from tests.conftest import built_once
from tests.precision import DOUBLE
from tests.trainer.runs import figures, figures_in_double, gains, mixed_rows, told

KL = {"beta": 0.04, "max_steps": 2}


def zeroed(monkeypatch, name):
    """As a rank has it that loads nothing because rank 0 does."""
    original = grpo.GRPOTrainer.train

    def train(trainer, *args, **kwargs):
        with torch.no_grad():
            for parameter in getattr(trainer, name).parameters():
                parameter.zero_()
        return original(trainer, *args, **kwargs)

    monkeypatch.setattr(grpo.GRPOTrainer, "train", train)


def test_a_reference_of_zeros_ends_the_run_in_its_first_step(tiny_qwen, digits, tmp_path, monkeypatch):
    zeroed(monkeypatch, "ref_model")
    with pytest.raises(
        RefusedError, match="must be 0: the reference model has other weights than the policy"
    ):
        figures(tiny_qwen, digits.train, tmp_path, **KL)


def test_a_fresh_reference_has_a_first_kl_of_0_and_nothing_is_said(tiny_qwen, digits, tmp_path):
    with told() as messages:
        logged = figures(tiny_qwen, digits.train, tmp_path, **KL)
    assert logged["kl"][0] == pytest.approx(0, abs=1e-6)
    assert not [text for text in messages if "kl of the first step" in text]


@pytest.mark.slow
def test_another_kl_is_said_with_its_reason(tiny_qwen, digits, tmp_path):
    with told() as messages:
        logged = figures(tiny_qwen, digits.train, tmp_path, **KL, neftune_noise_alpha=50.0)
    (line,) = [text for text in messages if "kl of the first step" in text]
    assert logged["kl"][0] > 1e-4
    assert "the reference is the policy without its noise (NEFTune" in line


@pytest.mark.slow
def test_another_reference_is_no_fault(tiny_qwen, digits, tmp_path, shared_folder):
    other = built_once(
        shared_folder / "tiny_qwen_seed_1", lambda folder: testing.tiny_qwen2_5_vl(folder, seed=1)
    )
    with told() as messages:
        figures(tiny_qwen, digits.train, tmp_path, **KL, ref_model=other)
    assert not [text for text in messages if "kl of the first step" in text]


class NormsTuner(PeftTuner):
    """A user's own, without adapters: what scales the layers' inputs trains."""

    @staticmethod
    def prepare_model(args, model):
        model.requires_grad_(False)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("layernorm" in name)
        return model


# The tuner, its model, and of its weights one that PEFT cannot turn off.
TUNERS = {
    "lora_llm": ("qwen2_5_vl", {"tuner_type": "lora_llm"}),
    "adapter": ("llama", {"tuner_type": "adapter"}),
    "llamapro": ("llama", {"tuner_type": "llamapro", "llamapro_num_new_blocks": 1}),
    "a user's own": ("llama", {"tuner_type": "norms"}),
    "LoRA and biases": ("qwen2_5_vl", {"tuner_type": "lora", "lora_bias": "all"}),
    "LoRA from the weights' own directions": ("llama", {"tuner_type": "lora", "init_weights": "pissa"}),
}
STEPS = {"beta": 0.04, "max_steps": 3, "optim": "sgd", "learning_rate": 0.5, "lora_dropout": 0}


@pytest.fixture
def second_model(monkeypatch):
    """A copy of the whole policy, made before training: its log-probs are held against each reference pass."""
    apart = []
    train, prepare = grpo.GRPOTrainer.train, grpo.GRPOTrainer._prepare_batch_inputs

    def with_second_model(trainer, *args, **kwargs):
        trainer.second = deepcopy(trainer.accelerator.unwrap_model(trainer.model))
        return train(trainer, *args, **kwargs)

    def measured(trainer, samples):
        batches = prepare(trainer, samples)
        for batch in batches:
            found = batch["grpo_batch"]
            with torch.no_grad():
                logps = trainer._get_per_token_logps_and_entropies(
                    trainer.second, batch["model_inputs"], found
                )[0]
            apart.append(float(((logps - found.ref_per_token_logps) * found.completion_mask).abs().max()))
        return batches

    monkeypatch.setattr(grpo.GRPOTrainer, "train", with_second_model)
    monkeypatch.setattr(grpo.GRPOTrainer, "_prepare_batch_inputs", measured)
    return apart


@pytest.fixture
def of_tuner(shared_folder, digits, tmp_path, monkeypatch):
    """Runs with a tuner in double precision: their figures, into a folder of a name."""
    monkeypatch.setitem(tuners_map, "norms", NormsTuner)

    def run(tuner, folder, **options):
        family, chosen = TUNERS[tuner]
        model = built_once(
            shared_folder / f"reference_{family}", lambda path: testing.tiny_checkpoint(family, path)
        )
        rows = digits.train if family != "llama" else mixed_rows(digits, tmp_path / "rows.jsonl", most=0)
        return figures_in_double(model, rows, tmp_path / folder, **{**STEPS, **chosen, **options})

    return run


FIRST = ("lora_llm",)  # the others run in `make test-slow`


@pytest.mark.parametrize(
    "tuner", [pytest.param(tuner, marks=() if tuner in FIRST else pytest.mark.slow) for tuner in TUNERS]
)
def test_the_reference_is_the_start_with_every_tuner(tuner, of_tuner, second_model, tmp_path):
    kl = of_tuner(tuner, "run")["kl"]
    assert len(second_model) >= 3
    assert max(second_model) < DOUBLE
    assert abs(kl[0]) < DOUBLE < min(kl[1:])
    assert gains(tmp_path / "run")["reference_copy"]["state"] == "on"


def test_a_resumed_run_has_the_reference_of_its_start(of_tuner, tmp_path):
    tuner = "lora_llm"  # ms-swift resumes neither `adapter` nor `llamapro`
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = of_tuner(tuner, "whole", **saved)
    checkpoint = testing.newest_version(tmp_path / "whole") / "checkpoint-2"
    resumed = of_tuner(tuner, "resumed", **saved, resume_from_checkpoint=checkpoint)
    assert resumed["kl"] == pytest.approx(whole["kl"][2:], rel=1e-6)
    (checkpoint / reference.START).unlink()
    with told() as messages:
        without = of_tuner(tuner, "without", **saved, resume_from_checkpoint=checkpoint)
    assert abs(without["kl"][0]) < DOUBLE
    assert [text for text in messages if "kl is to the weights of the checkpoint" in text]


# Two ranks, each with a group in a micro-batch, and how they divide what trains.
WAYS = {"DDP": {}, "ZeRO-3": {"deepspeed": "zero3"}, "FSDP2": {"fsdp": "fsdp2"}}
SLOW = pytest.mark.slow


@pytest.mark.two_ranks
@pytest.mark.timeout(600)
@SLOW
@pytest.mark.parametrize("way", ["ZeRO-3", "DDP", "FSDP2"])
def test_two_ranks_have_the_reference_of_one_and_resume_with_it(way, tmp_path):
    model = inputs.MODELS["qwen2_5_vl"](tmp_path / "model")
    rows = inputs.DATA["image"](tmp_path / "data")
    options = {"tuner_type": "lora_llm", "gradient_checkpointing": False, "learning_rate": 0.3}
    options |= {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "beta": 0.04, **WAYS[way]}

    def kl(name, ranks, cutting, **more):
        configuration = Configuration({**options, **cutting, **more})
        return [row["kl"] for row in steps("Ours", configuration, model, rows, tmp_path / name, ranks)]

    two = kl("two", 2, cut(4))
    assert min(two[1:]) > 1e-4 > abs(two[0])
    if way != "FSDP2":  # where ms-swift's checkpoints of lora_llm cannot be resumed
        checkpoint = testing.newest_version(tmp_path / "two" / "Ours") / "checkpoint-2"
        resumed = kl("resumed", 2, cut(4), resume_from_checkpoint=checkpoint)
        assert resumed == pytest.approx(two[2:], rel=1e-3)
    options = {name: value for name, value in options.items() if name not in WAYS[way]}
    assert two == pytest.approx(kl("one", 1, cut(8)), rel=1e-3, abs=1e-5)
