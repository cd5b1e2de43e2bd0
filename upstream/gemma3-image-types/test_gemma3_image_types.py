"""A row of Gemma 3 has type 1 at the tokens of its image, and at no other."""

from swift.model import get_processor
from swift.template import get_template

from swift_grpo_ext import testing


def test_types_are_those_of_image_tokens(digits, tmp_path):
    model = testing.tiny_checkpoint("gemma3", tmp_path)
    host = testing.host_types(model)
    processor = get_processor(str(model), model_type=host["model_type"])
    template = get_template(processor, template_type=host["template"])
    template.set_mode("train")
    template.boi_token_id = processor.tokenizer.boi_token_id  # of a tiny vocabulary
    row = testing.read_jsonl(digits.train)[0]
    messages = [*row["messages"], {"role": "assistant", "content": "7"}]
    encoded = template.encode({"messages": messages, "images": row["images"]})
    of_images = [int(token == processor.tokenizer.image_token_id) for token in encoded["input_ids"]]
    assert sum(of_images) == 4
    assert list(encoded["token_type_ids"]) == of_images
