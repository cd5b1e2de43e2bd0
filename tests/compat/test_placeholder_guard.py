"""The guard on vLLM's sampling parameters, on a stand-in engine: vLLM itself is not installed here."""

import dataclasses
from types import SimpleNamespace

import pytest
from compat.stand_ins import Engine
from transformers import AutoConfig, AutoTokenizer

from swift_grpo_ext.compat.placeholder_guard import in_vllm as PATCH


def engine(folder):
    return Engine(AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder))


@pytest.fixture
def guard(prove):
    target = f"{Engine.__module__}:Engine._prepare_generation_config"
    proof = prove(dataclasses.replace(PATCH, target=target, after=""))
    proof.on()
    return proof


def test_the_defect_the_cure_and_the_way_back(guard, tiny_qwen):
    guard.off()
    assert engine(tiny_qwen)._prepare_generation_config(["mine"]).bad_words == ["mine"]
    guard.on()
    assert "<|image_pad|>" in engine(tiny_qwen)._prepare_generation_config(["mine"]).bad_words
    guard.off()
    guard.drift()


def test_placeholders_are_bad_words(guard, tiny_qwen):
    found = engine(tiny_qwen)._prepare_generation_config(["mine"]).bad_words
    assert found[0] == "mine"
    assert set(found[1:]) == {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"}


def test_each_is_one_token(guard, tiny_ovis):
    stand_in = engine(tiny_ovis)
    found = stand_in._prepare_generation_config(None).bad_words
    assert len(found) == 6
    assert all(len(stand_in.tokenizer.encode(word, add_special_tokens=False)) == 1 for word in found)


def test_other_models_are_left_alone(guard):
    other = Engine(SimpleNamespace(model_type="llama"), None)
    assert other._prepare_generation_config(None).bad_words is None
