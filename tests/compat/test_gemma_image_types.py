"""The tokens of an image of Gemma 3 are marked as such, and see each other."""

import pytest
import torch
from swift.model import get_model_processor

from swift_grpo_ext import testing
from swift_grpo_ext.compat import gemma_image_types, registry
from tests.models import contract

DEFECT = registry.patches()["F41-gemma-image-types"].defect


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return testing.tiny_checkpoint("gemma3", tmp_path_factory.mktemp("gemma") / "model")


@pytest.mark.skipif(bool(DEFECT.absent_because()), reason=DEFECT.absent_because() or "has it")
def test_the_types_are_those_of_the_image_tokens(prove, model, digits):
    host = testing.host_types(model)
    subject = contract.load(model, model_type=host["model_type"], template_type=host["template"])
    subject.template.set_mode("train")
    row = testing.read_jsonl(digits.train)[0]
    answered = {**row, "messages": [*row["messages"], {"role": "assistant", "content": "7"}]}
    # A tiny vocabulary has no token 255999, which ms-swift's class names.
    subject.template.boi_token_id = subject.template.processor.tokenizer.boi_token_id
    network = get_model_processor(str(model), model_type=host["model_type"], torch_dtype=torch.float64)[0]
    of_images = subject.template.processor.tokenizer.image_token_id

    def encoded():
        return subject.template.encode({name: answered[name] for name in ("messages", "images")})

    def last_logits(row):
        batch = subject.template.data_collator([row])
        wanted = ("input_ids", "attention_mask", "token_type_ids", "pixel_values")
        inputs = {name: batch[name] for name in wanted if name in batch}
        inputs["pixel_values"] = inputs["pixel_values"].double()
        with torch.no_grad():
            return network.eval()(**inputs).logits[0, -1]

    proof = prove(gemma_image_types.fix)
    before = encoded()
    assert of_images in before["input_ids"]
    assert not any(
        kind
        for kind, token in zip(before["token_type_ids"], before["input_ids"], strict=True)
        if token == of_images
    )
    proof.drift()
    proof.on()
    after = encoded()
    assert after["token_type_ids"] == [int(token == of_images) for token in after["input_ids"]]
    assert sum(after["token_type_ids"]) == 4
    assert after["input_ids"] == before["input_ids"]
    assert (last_logits(after) - last_logits(before)).abs().max() > 1e-6, "another mask"
    proof.off()
