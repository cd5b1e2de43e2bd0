"""Every reason for which an optimisation is off, on real trainers."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import peft
import pytest
import torch
import transformers
from torch import nn
from transformers import Qwen2_5_VLForConditionalGeneration

from swift_grpo_ext import testing
from swift_grpo_ext.features import features_of
from swift_grpo_ext.group.cut import BatchSizes
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer import features
from swift_grpo_ext.trainer.features import decide
from swift_grpo_ext.trainer.gains import facts_of, line_of
from swift_grpo_ext.trainer.noise import noise_in_config
from swift_grpo_ext.trainer.passes import Passes
from tests.trainer.runs import STOCK, mixed_rows, told
from tests.trainer.runs import figures_in_double as figures
from tests.trainer.unstarted_trainer import unstarted_trainer

FEATURES = features_of("trainer")
FORWARD = ("shared_prefix", "vision_once", "chunked_logps", "reduced_recompute", "skip_zero_advantage")


@pytest.fixture(scope="module")
def trainer(tiny_qwen, digits, tmp_path_factory):
    return unstarted_trainer(tiny_qwen, digits.train, tmp_path_factory.mktemp("built"))


def reasons(trainer, **switches):
    """Why each is off, without what would turn it on."""
    found = causes(decide(trainer, Settings(**switches)))
    return {name: found.get(name, "") for name in FEATURES if name != "skip_zero_advantage"}


def causes(found):
    return {name: why.partition("; ")[0] for name, why in found.why_off.items()}


def line_of_gains(found):
    return line_of(facts_of(found, BatchSizes(4, 2, 2), 4)["gains"])


def test_all_is_on_in_an_ordinary_run(trainer):
    assert set(reasons(trainer).values()) == {""}
    assert not decide(trainer, Settings()).stock_forward
    line = line_of_gains(decide(trainer, Settings()))
    assert line.startswith("shared_prefix on, vision_once on, skip_old_logps on")


@pytest.mark.parametrize("name", sorted(set(FEATURES) - {"skip_zero_advantage"}))
def test_each_has_a_switch(trainer, name):
    for switch in (f"trainer.{name}", name):  # the second is the word that the line shows
        found = reasons(trainer, disable=switch)
        assert found.pop(name) == "switched off"
        assert not any(found.values())


def test_a_fallback_turns_the_whole_forward_back(trainer):
    fallen = decide(trainer, Settings()).without_forward("why")
    assert fallen.stock_forward
    assert set(fallen.why_off) == set(FORWARD)
    assert not [name for name in FORWARD if name in fallen]
    assert "shared_prefix off (why)" in line_of_gains(fallen)


def test_sequence_parallelism_keeps_the_features(trainer, monkeypatch):
    monkeypatch.setattr(trainer.template, "sequence_parallel_size", 2)
    monkeypatch.setattr(trainer, "old_policy", lambda: False)  # would ask the ranks of sequence parallel
    found = reasons(trainer)
    assert found["shared_prefix"] == found["chunked_logps"]
    assert "cannot divide a pack" in found["shared_prefix"]
    assert found["vision_once"] == ""


def test_rows_without_padding_are_told_apart_by_packs_alone(trainer, monkeypatch):
    monkeypatch.setattr(trainer.template, "padding_free", True)
    assert {name: why for name, why in reasons(trainer).items() if "padding_free" in why} == {}
    monkeypatch.setattr(trainer.model, "get_output_embeddings", lambda: None)
    found = reasons(trainer)
    assert found["shared_prefix"] == "the model has no output layer of its own"
    assert found["vision_once"] == ""


@pytest.mark.parametrize("name", ["final_logit_softcapping", "logit_scale", "logits_scaling"])
def test_a_model_that_changes_its_logits(trainer, monkeypatch, name):
    monkeypatch.setattr(trainer.model.config.get_text_config(), name, 0.5, raising=False)
    found = reasons(trainer)
    assert found["chunked_logps"] == found["shared_prefix"] == f"the model changes its logits ({name})"
    assert found["vision_once"] == ""


def test_a_model_without_an_output_layer_goes_the_stock_way(tiny_qwen, digits, tmp_path, monkeypatch):
    stock = figures(tiny_qwen, digits.train, tmp_path / "stock", STOCK)
    monkeypatch.setattr(Qwen2_5_VLForConditionalGeneration, "get_output_embeddings", lambda model: None)
    with told() as messages:
        ours = figures(tiny_qwen, digits.train, tmp_path / "ours")
    (said,) = [text for text in messages if "shared_prefix" in text]
    assert "shared_prefix off (the model has no output layer of its own)" in said
    assert not any("self-check" in text for text in messages)
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_a_family_nobody_knows(trainer, monkeypatch):
    monkeypatch.setattr(features, "family_of", lambda config: None)
    found = reasons(trainer)
    assert found["shared_prefix"] == "nothing is known about the family 'qwen2_5_vl'"
    assert found["shared_prefill"] == "nothing is known about the family 'qwen2_5_vl'"
    assert found["vision_once"] == "nothing is known about images of the family 'qwen2_5_vl'"


@pytest.mark.parametrize("name", ["shared_prefix", "vision_once"])
def test_a_family_that_cannot(trainer, monkeypatch, name):
    facts = family_of("qwen2_5_vl")
    lacking = replace(facts, lacks={name: "it cannot"})
    monkeypatch.setattr(features, "family_of", lambda config: lacking)
    assert reasons(trainer)[name] == "it cannot"


def test_prompt_learning(trainer, monkeypatch):
    config = SimpleNamespace(is_prompt_learning=True)
    wrapped = peft.PeftModel.__new__(peft.PeftModel)
    nn.Module.__init__(wrapped)
    monkeypatch.setattr(peft.PeftModel, "active_peft_config", config)
    monkeypatch.setattr(features, "base_model", lambda trainer, model, base=trainer.model: base)
    monkeypatch.setattr(trainer, "model", wrapped)
    assert reasons(trainer)["shared_prefix"] == "prompt learning"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("layer_types", ["full_attention", "chunked_attention"], "layers of type chunked_attention"),
        ("attention_dropout", 0.1, "attention_dropout 0.1"),
        ("_attn_implementation_internal", "eager", "attention implementation 'eager' is not in"),
    ],
)
def test_attention_that_a_pack_does_not_know(trainer, monkeypatch, name, value, why):
    monkeypatch.setattr(trainer.model.config.get_text_config(), name, value)
    found = reasons(trainer)
    assert found["shared_prefix"].startswith(why)
    assert found["shared_prefill"] == (why if name == "layer_types" else "")
    assert found["vision_once"] == ""


def test_parameters_that_are_gathered_for_a_layer(trainer, monkeypatch):
    monkeypatch.setattr(trainer, "is_fsdp_enabled", True)
    found = reasons(trainer)
    assert found.pop("reduced_recompute").startswith("ZeRO-3 and FSDP release")
    assert not any(found.values())


def test_noise_for_each_row(trainer, monkeypatch):
    """NEFTune's noise is drawn in a hook, so that a group would share it; a router's jitter in its code."""
    monkeypatch.setattr(trainer.args, "neftune_noise_alpha", 5.0)
    assert reasons(trainer)["shared_prefix"].startswith("NEFTune adds noise to each row")
    monkeypatch.setattr(trainer.args, "neftune_noise_alpha", None)
    monkeypatch.setattr(trainer.model.config.get_text_config(), "router_jitter_noise", 0.01, raising=False)
    assert reasons(trainer)["shared_prefix"].startswith("router_jitter_noise 0.01")


def test_dropout_of_the_tower_is_of_each_pass(trainer, monkeypatch):
    monkeypatch.setattr(trainer.model.config.vision_config, "attention_dropout", 0.1, raising=False)
    assert reasons(trainer)["vision_once"] == "attention_dropout 0.1 in the vision config"
    monkeypatch.setattr(trainer.model.model.visual, "drop", nn.Dropout2d(0.1), raising=False)
    assert reasons(trainer)["vision_once"] == "Dropout2d 0.1 in drop"


def rates_of_functional_dropout():
    """Settings that transformers' models hand to ``dropout(x, p, self.training)``, read in their code."""
    called = re.compile(r"functional\.dropout\([^,()]+, *p=((?:self\.)?(?:\w*config\.)*)(\w+)")
    of_attention = re.compile(r"dropout=0\.0 if not self\.training else (self\.)(\w+)")
    names = set()
    for path in Path(transformers.__file__).parent.glob("models/*/modeling_*.py"):
        text = path.read_text(encoding="utf-8")
        kept = dict(re.findall(r"self\.(\w+) = (?:self\.)?(?:\w*config\.)+(\w+)", text))
        for owner, name in called.findall(text) + of_attention.findall(text):
            names.add(kept.get(name, "") if owner == "self." else name if owner else "")
    return names - {""}


def test_every_rate_that_transformers_models_read_is_noise():
    names = rates_of_functional_dropout()
    assert names >= {"dropout", "attention_dropout", "resid_pdrop", "residual_dropout", "hidden_dropout_prob"}
    assert len(names) > 12
    for name in names:
        assert noise_in_config(transformers.PretrainedConfig(**{name: 0.1})) == f"{name} 0.1"
    assert noise_in_config(transformers.PretrainedConfig(classifier_dropout=0.1, dropout=0.0)) == ""


def test_a_micro_batch_of_one_completion_says_what_would_share(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "per_device_train_batch_size", 1)
    with told() as messages:
        Passes(trainer, Settings())
    (said,) = [text for text in messages if "shared_prefix" in text]
    assert "shared_prefix idle (one completion of a prompt in a micro-batch)" in said
    assert len(said) <= 160


def test_dropout(trainer, monkeypatch):
    monkeypatch.setattr(trainer.model, "lora_dropout", nn.Dropout(0.05), raising=False)
    assert reasons(trainer)["shared_prefix"] == "dropout 0.05 in lora_dropout"


def test_a_tower_that_trains(trainer):
    weight = next(trainer.model.model.visual.merger.parameters())
    weight.requires_grad_(True)
    try:
        why = reasons(trainer)["vision_once"]
    finally:
        weight.requires_grad_(False)
    assert why == "the vision tower or the aligner trains"


def test_adapters_in_the_tower(tiny_qwen, digits, tmp_path):
    overrides = {"tuner_type": "lora", "lora_dropout": 0, "target_modules": "all-linear"}
    trains = unstarted_trainer(tiny_qwen, digits.train, tmp_path / "a", freeze_vit=False, **overrides)
    assert reasons(trains)["vision_once"] == "the vision tower or the aligner trains"
    for parameter in trains.model.parameters():
        parameter.requires_grad_(False)  # adapters of another tuning step, kept as they are
    assert reasons(trains)["vision_once"] == "the vision tower or the aligner has adapters"
    aside = unstarted_trainer(tiny_qwen, digits.train, tmp_path / "b", **overrides)
    assert reasons(aside)["vision_once"] == ""


def test_a_text_model_has_no_images_to_encode(digits, tmp_path):
    model = testing.tiny_checkpoint("llama", tmp_path / "model")
    rows = mixed_rows(digits, tmp_path / "rows.jsonl", 0)
    found = decide(unstarted_trainer(model, rows, tmp_path / "run"), Settings())
    assert found.why_idle == {
        "vision_once": "the model takes no images",
        "prepare_ahead": "the model takes no images",
        "held_out": "no held-out rows; --val_dataset",
        "reference_copy": "the reference is a model of its own",
    }
    assert "vision_once" not in found.why_off


def test_a_tokenizer_that_samples(tiny_ovis, digits, tmp_path):
    trainer = unstarted_trainer(tiny_ovis, digits.train, tmp_path)
    assert reasons(trainer)["vision_once"] == ""
    trainer.model.config.vision_config.tokenize_function = "gumbel_argmax"
    assert reasons(trainer)["vision_once"] == "the visual tokenizer samples"


def test_a_reference_with_another_tower(tiny_qwen, digits, tmp_path):
    trainer = unstarted_trainer(tiny_qwen, digits.train, tmp_path)
    assert trainer.ref_model is not None
    with torch.no_grad():
        next(trainer.ref_model.model.visual.parameters()).add_(1)
    assert reasons(trainer)["vision_once"] == "the reference model has another vision tower"


@pytest.mark.parametrize("synced", [False, True])
def test_the_reference_has_the_memory_of_the_policys_tower(tiny_qwen, digits, tmp_path, synced):
    """Unless the policy is mixed into the reference from time to time, in place."""
    trainer = unstarted_trainer(tiny_qwen, digits.train, tmp_path, sync_ref_model=synced)
    before = [one.clone() for one in trainer.ref_model.parameters()]
    Passes(trainer, Settings())
    pairs = zip(trainer.model.named_parameters(), trainer.ref_model.parameters(), strict=True)
    shared = {name for (name, ours), theirs in pairs if ours.data_ptr() == theirs.data_ptr()}
    tower = {name for name, _ in trainer.model.named_parameters() if ".visual." in name}
    assert shared == (set() if synced else tower)
    assert all(map(torch.equal, before, trainer.ref_model.parameters()))


def test_vllm_is_asked_once_for_a_group_unless_it_takes_completions_by_themselves(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "use_vllm", True)
    assert reasons(trainer)["shared_prefill"] == ""
    monkeypatch.setattr(trainer.args, "multi_turn_scheduler", "gym_scheduler")
    assert reasons(trainer)["shared_prefill"] == "gym_scheduler takes each completion by itself"
    monkeypatch.setattr(trainer.args, "multi_turn_scheduler", None)
    monkeypatch.setattr(trainer, "vllm_use_async_engine", True)
    assert reasons(trainer)["shared_prefill"] == "the async engine takes each completion by itself"


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        ("", "beta", 0.04, "beta is 0.04"),
        ("", "loss_type", "real", "loss_type real compares them"),
        ("", "compute_entropy", True, "entropies are asked for"),
        ("", "rollout_importance_sampling_mode", "token_truncate", "importance sampling"),
        ("", "off_policy_sequence_mask_delta", 0.1, "a mask"),
        ("", "advantage_reweight", "rlsd", "the teacher's loss"),
    ],
)
def test_who_needs_silent_completions(trainer, monkeypatch, owner, name, value, why):
    monkeypatch.setattr(trainer, "beta", 0.0)
    assert "skip_zero_advantage" in decide(trainer, Settings())
    assert (
        causes(decide(trainer, Settings(disable="trainer.skip_zero_advantage")))["skip_zero_advantage"]
        == "switched off"
    )
    monkeypatch.setattr(trainer, name, value)
    assert causes(decide(trainer, Settings())) == {"skip_zero_advantage": why} | (
        {"skip_old_logps": "--advantage_reweight rlsd"} if value == "rlsd" else {}
    )


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        ("", "_needs_old_logps", bool, "ms-swift leaves it out itself"),
        ("", "kl_in_reward", True, "kl_in_reward needs the old log-probs"),
        ("", "_teacher_use_disable_adapter", True, "the teacher's loss reads old log-probs"),
        ("", "advantage_reweight", "rlsd", "--advantage_reweight rlsd"),
        ("", "sdar_loss_coef", 0.1, "the SDAR loss reads it"),
    ],
)
def test_who_needs_old_log_probs(trainer, monkeypatch, owner, name, value, why):
    monkeypatch.setattr(trainer.args if owner else trainer, name, value, raising=False)
    found = reasons(trainer)
    assert found["skip_old_logps"] == why
    assert found["shared_prefix"] == ""


def test_updates_that_begin_within_a_rollout_need_old_log_probs(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "steps_per_generation", 3)
    assert reasons(trainer)["skip_old_logps"] == ""
    monkeypatch.setattr(trainer.args, "gradient_accumulation_steps", 2)
    assert reasons(trainer)["skip_old_logps"] == "updates begin within rollouts"


def test_liger_with_rollout_importance_sampling_needs_old_log_probs(trainer, monkeypatch):
    monkeypatch.setattr(trainer.args, "use_liger_kernel", True)
    assert reasons(trainer)["skip_old_logps"] == ""
    monkeypatch.setattr(trainer.args, "rollout_importance_sampling_mode", "token_truncate")
    assert reasons(trainer)["skip_old_logps"] == "the liger loss corrects rollouts by it"
