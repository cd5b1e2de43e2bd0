"""Real sampling: pairs of options give the steps of ms-swift's own trainer, also while held-out rows are answered.

The other sweeps script the completions, so nothing of theirs goes through an engine or draws a number.
"""

import random

import pytest
from allpairspy import AllPairs
from conftest import built_once
from sweep import runner
from sweep.table import LORA
from swift.trainers.trainer_factory import TrainerFactory

from swift_grpo_ext import testing
from swift_grpo_ext.version import __version__
from tests.trainer.runs import figures_in_double, mixed_rows

WITHOUT_DROPOUT = {**LORA, "lora_dropout": 0}
AXES = {
    "family": {"qwen2_5_vl": 1, "qwen3_vl": 1, "llama": 0},  # and the most images of a row
    "held out": {"none": {}, "every step": {"eval_strategy": "steps", "eval_steps": 1}},
    "turns": {"one": {}, "two": {"multi_turn_scheduler": "sweep_again", "max_turns": 2}},
    "updates": {"one": {}, "two": {"num_iterations": 2}},
    "loss": {name: {"loss_type": name} for name in ("grpo", "dapo", "cispo", "dr_grpo", "bnpo", "sapo")}
    | {"sequences": {"importance_sampling_level": "sequence"}},
    "baseline": {
        "group": {},
        "rloo": {"advantage_estimator": "rloo", "kl_in_reward": True},
        "reinforce": {"advantage_estimator": "reinforce_plus_plus"},
        "batch": {"scale_rewards": "batch"},
        "gdpo": {"scale_rewards": "gdpo"},
    },
    "reference": {
        "fixed": {"beta": 0.04},
        "none": {"beta": 0.0},
        "following": {
            "beta": 0.04,
            "sync_ref_model": True,
            "ref_model_sync_steps": 1,
            "ref_model_mixup_alpha": 0.5,
        },
    },
    "cut": {
        "4 x 2": {"gradient_accumulation_steps": 2},
        "1 x 8": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        "8 x 1": {"per_device_train_batch_size": 8},
        "2 x 2 of 4": {
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "steps_per_generation": 4,
        },
    },
    "trained": {
        "language": {},
        "all": {"freeze_vit": False, "freeze_aligner": False},
        "lora": WITHOUT_DROPOUT,
        "lora everywhere": {**WITHOUT_DROPOUT, "freeze_vit": False, "target_modules": "all-linear"},
    },
    "rows": {
        "plain": {},
        "worker": {"dataloader_num_workers": 1},
        "in order": {"dataset_shuffle": False, "train_dataloader_shuffle": False},
        "long ones left out": {"truncation_strategy": "delete", "max_length": 200},
    },
    "sampling": {
        "plain": {},
        "filtered": {"temperature": 1.3, "top_k": 100, "top_p": 0.9},
        "one token": {"max_completion_length": 1},
        "penalty": {"repetition_penalty": 1.1},
    },
    "watched": {
        "plain": {},
        "entropy": {"log_entropy": True},
        "ratios": {"log_rollout_offpolicy_metrics": True},
    },
}


def covering(seed=__version__):
    """Choices by axis in which every two of two axes meet; each release orders them anew."""
    generator = random.Random(seed)
    return [
        dict(zip(AXES, row, strict=True))
        for row in AllPairs([generator.sample([*axis], len(axis)) for axis in AXES.values()])
    ]


def options_of(row):
    """What a row's run is told beside its family."""
    chosen = {}
    for axis, choice in row.items():
        if axis != "family":
            chosen |= AXES[axis][choice]
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("row", covering(), ids=lambda row: ", ".join(row.values()))
def test_steps_are_those_of_ms_swift(row, shared_folder, digits, tmp_path, monkeypatch):
    family = row["family"]
    model = built_once(
        shared_folder / f"sampled_{family}",
        lambda folder: testing.tiny_checkpoint(family, folder, stock_vocabulary=family != "llama"),
    )
    data = mixed_rows(digits, tmp_path / "rows.jsonl", AXES["family"][family])
    options = {"max_steps": 3, **options_of(row)}
    with_evaluation = {**options, "val_dataset": data} if "eval_steps" in options else options
    ours = figures_in_double(model, data, tmp_path / "ours", **with_evaluation)

    # ms-swift's own evaluation samples, which moves all that is drawn after it.
    alone = {name: value for name, value in options.items() if not name.startswith("eval_")}
    monkeypatch.setitem(TrainerFactory.TRAINER_MAPPING, "grpo", "swift.rlhf_trainers.GRPOTrainer")
    monkeypatch.setitem(TrainerFactory.TRAINING_ARGS_MAPPING, "grpo", runner.ARGUMENTS["Stock"])
    stock = figures_in_double(model, data, tmp_path / "stock", {"DISABLE": "trainer"}, **alone)
    assert stock["loss"]
    assert stock["grad_norm"]
    assert stock["reward"]
    for name in ("loss", "grad_norm", "reward", "kl"):
        assert ours.get(name) == pytest.approx(stock.get(name), rel=1e-4, abs=1e-5), name
