"""Models that nothing is known of, and kernels that are missing: ms-swift's own way, one line, the same figures."""

import json
from types import SimpleNamespace

import pytest
import transformers

from swift_grpo_ext import testing
from swift_grpo_ext.group import recurrent
from swift_grpo_ext.group.interface import why_no_packs, why_no_shared_prefill
from swift_grpo_ext.models.families import family_of, forbidden_token_ids, why_unknown
from tests.trainer.runs import STOCK, gains, mixed_rows, told
from tests.trainer.runs import figures_in_double as figures

CODE = """
from transformers import LlamaForCausalLM


class Own(LlamaForCausalLM):
    pass
"""


def both(model, data, folder):
    stock = figures(model, data, folder / "stock", STOCK)
    with told() as messages:
        ours = figures(model, data, folder / "ours")
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    return messages


def test_code_of_the_checkpoint(digits, tmp_path):
    model = testing.tiny_checkpoint("llama", tmp_path / "model")
    (model / "modeling_own.py").write_text(CODE)
    config = json.loads((model / "config.json").read_text())
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}, "architectures": ["Own"]}
    (model / "config.json").write_text(json.dumps(config))
    messages = both(model, mixed_rows(digits, tmp_path / "rows.jsonl", 0), tmp_path)
    assert gains(tmp_path / "ours")["shared_prefix"]["why"] == "code of the checkpoint (trust_remote_code)"
    assert len([text for text in messages if "shared_prefix off" in text]) == 1


def without_the_kernel(*inputs, **options):
    raise ImportError("cannot import name 'chunk_gated_delta_rule' from 'fla'\nand more")


@pytest.mark.slow
def test_a_kernel_that_is_missing(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(recurrent, "_takes_lengths", without_the_kernel)
    model = testing.tiny_checkpoint("qwen3_5", tmp_path / "model")
    messages = both(model, digits.train, tmp_path)
    (line,) = [text for text in messages if "self-check failed:" in text]
    assert line.endswith("ImportError: cannot import name 'chunk_gated_delta_rule' from 'fla'")


def test_an_encoder_and_a_decoder():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 64}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    assert why_no_packs(model) == why_no_shared_prefill(model) == "an encoder and a decoder"
    assert family_of(model.config) is None


def test_a_config_without_ids():
    config = transformers.MiniCPMV4_6Config(architectures=["MiniCPMV4_6ForConditionalGeneration"])
    assert config.image_token_id is None
    assert family_of(config) is None
    assert why_unknown(config) == "the config of 'minicpmv4_6' names no image token"
    tokens = {7: "<|image_pad|>", 8: "<|im_end|>", 9: "</img>"}
    added = {number: SimpleNamespace(content=text, special=True) for number, text in tokens.items()}
    assert forbidden_token_ids(config, SimpleNamespace(added_tokens_decoder=added)) == (7, 9)


def test_a_class_that_ms_swift_does_not_know():
    config = transformers.Idefics2Config(architectures=["SomebodysModel"], image_token_id=5)
    assert family_of(config) is None
    assert why_unknown(config) == "ms-swift names no modules of 'idefics2'"


def test_what_cannot_be_loaded_is_what_ms_swift_says():
    from swift.model import MODEL_MAPPING

    assert MODEL_MAPPING["kimi_vl"].requires == ["transformers<4.49"]
    assert "<5.0.0" in MODEL_MAPPING["kimi_k25"].requires[0]
