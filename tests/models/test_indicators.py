"""Tokens that stand around an image, and no image between them: words, or does the model read something there?"""

import pytest
import torch
from PIL import Image

from swift_grpo_ext import register, testing
from swift_grpo_ext.models.families import family_of, read_token_ids
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.models import contract

ROW = {"messages": [{"role": "user", "content": "<image>Which?"}], "images": [Image.new("RGB", (56, 56))]}
IN_THE_GATE = ("qwen2_5_vl", "ovis2", "qwen2_5_omni")
SEEING = [
    pytest.param(name, marks=() if name in IN_THE_GATE else pytest.mark.slow)
    for name in sorted(TINY)
    if TINY[name].vision
]


@pytest.fixture
def subject(request, shared_folder):
    name = request.param
    folder = built_once(shared_folder / f"tiny_{name}", lambda folder: testing.tiny_checkpoint(name, folder))
    register()
    host = TINY[name].host
    return contract.load(folder, model_type=host.get("model_type"), template_type=host.get("template"))


def embedded(subject, facts, tokens):
    """What the language model is given for the tokens at the end of an answer behind an image."""
    row = {**ROW, "messages": [*ROW["messages"], {"role": "assistant", "content": [100, *tokens, 101]}]}
    template = subject.template
    template.set_mode("train")
    batch = template.data_collator([template.encode(row)])
    batch.pop("labels")
    ids = batch["input_ids"][0].tolist()
    start = next(place for place in reversed(range(len(ids))) if ids[place : place + len(tokens)] == tokens)
    seen = []
    language_model = dict(subject.model.named_modules())
    path = next(path for path in language_model if path.endswith(facts.language_model[0]))
    hook = language_model[path].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    try:
        with torch.no_grad():
            _, kwargs = template.pre_forward_hook(subject.model, None, batch)
            subject.model(**kwargs)
    finally:
        hook.remove()
    return seen[0][0, start : start + len(tokens)]


def is_text(subject, facts, tokens):
    words = subject.model.get_input_embeddings()(torch.tensor(tokens))
    try:
        return torch.equal(embedded(subject, facts, tokens), words)
    except (
        IndexError,
        TypeError,
        ValueError,
        StopIteration,
    ):  # an image or a sound was looked for, or put there
        return False


@pytest.mark.parametrize("subject", SEEING, indirect=True)
def test_a_completion_is_cut_only_where_the_model_would_read_media(subject):
    """Every indicator by itself and all in a row, last in the row or not: words for it, or in `read_token_ids`."""
    facts = family_of(subject.model.config)
    read = read_token_ids(subject.model.config, subject.template.tokenizer)
    assert set(read) >= {facts.image_token_id}
    as_text = [token for token in facts.forbidden_token_ids if token not in read]
    assert all(is_text(subject, facts, [token]) for token in as_text)
    assert not as_text or is_text(subject, facts, as_text)
    if facts.reads_indicators:
        assert not is_text(subject, facts, list(facts.indicator_token_ids))
