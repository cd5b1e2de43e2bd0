"""The guard on what transformers samples, on a family that nobody has described."""

from types import SimpleNamespace

import pytest

from swift_grpo_ext.compat.placeholder_guard import in_transformers as PATCH
from swift_grpo_ext.models.families import family_of, forbidden_token_ids
from swift_grpo_ext.testing import tiny_checkpoint

WRITTEN = {
    "internvl": {"<IMG_CONTEXT>", "<img>", "</img>", "<video>"},
    "qwen3_5": {"<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"},
    "llama": set(),
}


@pytest.fixture(scope="module", params=sorted(WRITTEN))
def checkpoint(request, tmp_path_factory):
    from transformers import AutoConfig, AutoTokenizer

    folder = tiny_checkpoint(request.param, tmp_path_factory.mktemp(request.param))
    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return request.param, config, tokenizer


def test_config_and_tokenizer_name_what_is_forbidden(checkpoint):
    name, config, tokenizer = checkpoint
    found = set(tokenizer.convert_ids_to_tokens(list(forbidden_token_ids(config, tokenizer))))
    assert found >= WRITTEN[name]
    assert bool(found) == bool(WRITTEN[name])
    assert (family_of(config) is None) == (name == "llama")


def test_it_is_added_to_what_the_run_forbids(checkpoint):
    _, config, tokenizer = checkpoint
    template = SimpleNamespace(config=config, tokenizer=tokenizer, processor=tokenizer)
    usual = PATCH.fix(lambda self, kwargs, *, model=None: kwargs)
    asked = {"generation_config": SimpleNamespace(suppress_tokens=[3])}
    found = usual(template, asked)["generation_config"].suppress_tokens
    assert found == sorted({3, *forbidden_token_ids(config, tokenizer)})
