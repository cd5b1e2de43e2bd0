"""Ovis2ForConditionalGeneration, as transformers has it, in the host."""

import pytest
import torch
from PIL import Image


@pytest.fixture(scope="module")
def template(tiny_ovis):
    from swift.model import get_model_processor
    from swift.template import get_template

    model, processor = get_model_processor(str(tiny_ovis), torch_dtype=torch.float32, device_map="cpu")
    template = get_template(processor)
    template.set_mode("train")
    template.model = model.eval()
    return template


def row(*sizes):
    images = [Image.effect_noise(size, 90).convert("RGB") for size in sizes]
    return {"messages": [{"role": "user", "content": "<image>" * len(sizes) + "which digit?"},
                         {"role": "assistant", "content": "seven"}], "images": images}  # fmt: skip


def test_model_type_and_template_are_found(template):
    assert template.template_meta.template_type == "ovis2_hf"
    assert type(template.model).__name__ == "Ovis2ForConditionalGeneration"


def test_tokens_are_those_of_the_checkpoints_processor(template):
    messages = row((120, 60))
    encoded = template.encode(messages)
    processor = template.processor
    text = processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "which digit?"}]}],
        add_generation_prompt=True,
    )
    theirs = processor(text=text, images=messages["images"], return_tensors="pt")
    prompt = theirs["input_ids"][0].tolist()
    assert encoded["input_ids"][: len(prompt)] == prompt
    assert torch.equal(encoded["pixel_values"], theirs["pixel_values"])


def test_scores_do_not_depend_on_the_other_rows(template):
    """Images of several tiles and of one, and a row with two images, alone and in one batch."""
    rows = [template.encode(row(*sizes)) for sizes in [((120, 60),), ((56, 56),), ((56, 56), (60, 130))]]

    def logits(*encoded):
        inputs = template.data_collator(list(encoded))
        inputs.pop("labels")
        with torch.no_grad():
            return template.model(**inputs).logits

    together = logits(*rows)
    for number, encoded in enumerate(rows):
        length = len(encoded["input_ids"])
        assert torch.allclose(together[number, :length], logits(encoded)[0], atol=1e-5)


def test_image_tokens_are_never_sampled(template):
    from transformers import GenerationConfig

    model, config = template.model, template.model.config
    forbidden = [config.image_token_id, *config.visual_indicator_token_ids]

    def favour(module, inputs, logits):
        logits[..., forbidden] += 1e4

    generation = {"generation_config": GenerationConfig(max_new_tokens=4, do_sample=False)}
    handle = model.get_output_embeddings().register_forward_hook(favour)
    try:
        made = model.generate(
            torch.tensor([[1, 2, 3]]), **template.prepare_generate_kwargs(generation, model=model)
        )
    finally:
        handle.remove()
    assert made.shape[1] > 3
    assert not set(forbidden) & set(made[0].tolist())


@pytest.mark.parametrize("tuner", ["full", "lora"])
def test_grpo_trains(grpo, tiny_ovis, tuner):
    steps = grpo(model=tiny_ovis, model_type=None, template=None, tuner_type=tuner)
    assert len(steps) == 2
