"""What stock 4.6.0 does with placeholders, features and lengths (C1, C3, C4, C5), and what becomes of it."""

import dataclasses
import inspect

import pytest
import torch
from PIL import Image
from swift.template import Template

import swift_grpo_ext
from swift_grpo_ext.compat.placeholder_guard import in_transformers
from swift_grpo_ext.errors import DatasetRowError, RefusedError
from swift_grpo_ext.trainer.samples import cut_placeholders
from tests.models import contract
from tests.models.contract_cases import picture

ROW = {"messages": [{"role": "user", "content": "<image>Which?"}], "images": [Image.new("RGB", (56, 56))]}
PAD, IMAGE_PAD = 151643, 151655


@pytest.fixture(scope="module", autouse=True)
def registered():
    swift_grpo_ext.register()


@pytest.fixture(scope="module")
def qwen(tiny_qwen_stock):
    return contract.load(tiny_qwen_stock, model_type="qwen2_5_vl", template_type="qwen2_5_vl")


@pytest.fixture(scope="module")
def ovis(tiny_ovis):
    return contract.load(tiny_ovis)


@pytest.fixture(scope="module")
def stock(qwen):
    """The same model with the host's own template."""
    from swift.template import TEMPLATE_MAPPING
    from swift.template.templates.qwen import Qwen2_5VLTemplate

    meta = dataclasses.replace(TEMPLATE_MAPPING["qwen2_5_vl"], template_cls=Qwen2_5VLTemplate)
    template = Qwen2_5VLTemplate(qwen.template.processor, meta)
    template.model = qwen.model
    return dataclasses.replace(qwen, template=template)


def forward(subject, row):
    subject.template.set_mode("train")
    batch = subject.template.data_collator([subject.template.encode(row)])
    batch.pop("labels")
    with torch.no_grad():
        _, kwargs = subject.template.pre_forward_hook(subject.model, None, batch)
        return subject.model(**kwargs).logits


def answered(tokens):
    return {**ROW, "messages": [*ROW["messages"], {"role": "assistant", "content": tokens}]}


def test_c1_before_native_ovis2_is_unknown(tiny_ovis, monkeypatch):
    from swift.model import MODEL_MAPPING
    from swift.model.model_meta import get_model_info_meta

    monkeypatch.delitem(MODEL_MAPPING, "ovis2_hf")
    with pytest.raises(ValueError, match="no suitable `model_type` was found"):
        get_model_info_meta(str(tiny_ovis))


def test_c1_before_the_remote_loader_cannot_load_it(tiny_ovis, monkeypatch):
    from swift.model import MODEL_MAPPING, get_model_processor
    from swift.model.models.qwen import OvisLoader

    monkeypatch.setattr(MODEL_MAPPING["ovis2"], "loader", OvisLoader)
    with pytest.raises(ValueError, match="Ovis2Config"):
        get_model_processor(str(tiny_ovis), model_type="ovis2")


def test_c3_before_a_sampled_placeholder_crashes_the_forward(stock):
    assert forward(stock, answered([100, 101])).shape[0] == 1
    with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
        forward(stock, answered([100, IMAGE_PAD, 101]))


def test_c3_before_a_sampled_indicator_silently_becomes_a_part_of_an_image(ovis):
    tokens = [100, ovis.template.facts.indicator_token_ids[1], 101]
    with torch.no_grad():
        ids = torch.tensor([tokens])
        as_text = ovis.model(input_ids=ids).logits
        template = ovis.template
        template.set_mode("train")
        batch = template.data_collator([template.encode(answered(tokens))])
        batch.pop("labels")
        _, kwargs = template.pre_forward_hook(ovis.model, None, batch)
        place = batch["input_ids"][0].tolist().index(tokens[1], len(batch["input_ids"][0]) - 6)
        embedded = kwargs["inputs_embeds"][0, place]
    table = ovis.model.model.visual_embeddings_table.weight
    assert torch.equal(embedded, table[-4]), "the indicator's row, not the token's own embedding"
    assert not torch.equal(embedded, ovis.model.get_input_embeddings().weight[tokens[1]])
    assert as_text.isfinite().all()


def generate(subject, biased):
    """Greedy tokens of a model that would say nothing but a placeholder, through the host's engine."""
    from swift.infer_engine import InferRequest, RequestConfig, TransformersEngine

    def prefer(module, args, output):
        output[..., biased] += 1000.0
        return output

    hook = subject.model.lm_head.register_forward_hook(prefer)
    try:
        engine = TransformersEngine(subject.model, template=subject.template, max_batch_size=2)
        config = RequestConfig(max_tokens=4, temperature=0, return_details=True)
        return engine.infer([InferRequest(**ROW)], config)[0].choices[0].token_ids
    finally:
        hook.remove()


def test_c3_before_the_engine_samples_placeholders(stock, monkeypatch):
    usual = inspect.unwrap(Template.prepare_generate_kwargs)  # where another test has applied the patch
    monkeypatch.setattr(Template, "prepare_generate_kwargs", usual)
    assert generate(stock, IMAGE_PAD) == [IMAGE_PAD] * 4


@pytest.mark.parametrize("family", ["qwen", "ovis"])
def test_c3_the_engine_may_not(family, request, monkeypatch):
    usual = inspect.unwrap(Template.prepare_generate_kwargs)
    monkeypatch.setattr(Template, "prepare_generate_kwargs", in_transformers.fix(usual))
    subject = request.getfixturevalue(family)
    for token in subject.template.facts.forbidden_token_ids:
        assert token not in generate(subject, token)


@pytest.mark.parametrize(
    ("ids", "masks", "kept", "kept_masks"),
    [
        ([5, 6, 99, 7], [], [5, 6], []),
        ([99, 7], [1, 1], [2], [1]),
        ([[5, 99], [6, 7]], [[1, 1], [1, 0]], [[5], [6, 7]], [[1], [1, 0]]),
    ],
)
def test_c3_a_completion_that_arrives_with_one_is_cut(ids, masks, kept, kept_masks):
    from types import SimpleNamespace

    from swift.rl_core.data import GRPOSample

    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x"}]
    sample = GRPOSample(messages=messages, response_token_ids=ids, response_loss_mask=masks)
    tokenizer = SimpleNamespace(eos_token_id=2, decode=str)
    assert cut_placeholders(sample, {99}, tokenizer)
    assert (sample.response_token_ids, sample.response_loss_mask) == (kept, kept_masks)
    assert not cut_placeholders(sample, {99}, tokenizer), "and only once"


def test_c4_before_only_image_tokens_are_left(stock):
    row = {**ROW, "images": [picture(280, 280)]}
    stock.template.set_mode("train")
    limits = stock.template.max_length, stock.template.truncation_strategy
    stock.template.max_length, stock.template.truncation_strategy = 64, "left"
    try:
        ids = stock.template.encode(row)["input_ids"]
    finally:
        stock.template.max_length, stock.template.truncation_strategy = limits
    assert set(ids) == {IMAGE_PAD}
    assert len(ids) == 100


@pytest.mark.parametrize("family", ["qwen", "ovis"])
@pytest.mark.parametrize("strategy", ["left", "right"])
def test_c4_such_a_row_is_refused_with_its_counts(family, strategy, request, monkeypatch):
    template = request.getfixturevalue(family).template
    messages = [{"role": "user", "content": "<image><image>Which?"}]
    row = {"messages": messages, "images": [picture(280, 280)] * 2}
    template.set_mode("train")
    monkeypatch.setattr(template, "max_length", 40)
    monkeypatch.setattr(template, "truncation_strategy", strategy)
    with pytest.raises(DatasetRowError, match=r"\d+ image tokens leave no room for text in 40 tokens"):
        template.encode(row)
    short = template.encode({**ROW, "messages": [{"role": "user", "content": "<image>" + "long " * 99}]})
    ids = short["input_ids"]
    assert len(ids) == 40
    features = [token for token in ids if token == template.facts.image_token_id]
    assert len(features) == 4 * len(short["pixel_values"]) // (16 if family == "qwen" else 1)
    assert set(template.facts.forbidden_token_ids) & (set(ids) - {template.facts.image_token_id})


def batch_with_two_images_for_one(subject):
    subject.template.set_mode("train")
    encoded = subject.template.encode(ROW)
    for name in ("pixel_values", "image_grid_thw"):
        if name in encoded:
            encoded[name] = torch.cat([encoded[name]] * 2)
    batch = subject.template.data_collator([encoded])
    batch.pop("labels")
    return batch


def test_c5_before_surplus_features_pass_silently(stock):
    batch = batch_with_two_images_for_one(stock)
    with torch.no_grad():
        _, kwargs = stock.template.pre_forward_hook(stock.model, None, batch)
        assert stock.model(**kwargs).logits.isfinite().all()


def encode_two_images_for_one(subject):
    batch = batch_with_two_images_for_one(subject)
    subject.template.pre_forward_hook(subject.model, None, batch)


@pytest.mark.parametrize("family", ["qwen", "ovis"])
def test_c5_surplus_features_are_refused(family, request):
    subject = request.getfixturevalue(family)
    with pytest.raises(RefusedError, match=r"4 image tokens for 8 image features"):
        encode_two_images_for_one(subject)


@pytest.mark.parametrize("family", ["qwen", "ovis"])
def test_audio_is_refused(family, request):
    template = request.getfixturevalue(family).template
    with pytest.raises(DatasetRowError, match="takes no audio"):
        template.encode({"messages": [{"role": "user", "content": "<audio>?"}], "audios": ["a.wav"]})
