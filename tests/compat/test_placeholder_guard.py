"""The guard on vLLM's sampling parameters, on a stand-in engine: vLLM itself is not installed here."""

from types import SimpleNamespace

from transformers import AutoConfig, AutoTokenizer

from swift_grpo_ext.compat.placeholder_guard import fix


def engine(folder):
    return SimpleNamespace(
        config=AutoConfig.from_pretrained(folder), tokenizer=AutoTokenizer.from_pretrained(folder)
    )


def params(self, request_config):
    return SimpleNamespace(bad_words=request_config)


def test_placeholders_are_bad_words(tiny_qwen):
    found = fix(params)(engine(tiny_qwen), ["mine"]).bad_words
    assert found[0] == "mine"
    assert set(found[1:]) == {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"}


def test_each_is_one_token(tiny_ovis):
    stand_in = engine(tiny_ovis)
    found = fix(params)(stand_in, None).bad_words
    assert len(found) == 6
    assert all(len(stand_in.tokenizer.encode(word, add_special_tokens=False)) == 1 for word in found)


def test_other_models_are_left_alone():
    other = SimpleNamespace(config=SimpleNamespace(model_type="llama"))
    assert fix(params)(other, None).bad_words is None
