"""A row of GLM-4.5V has a token type for each of its tokens, or none."""

from swift.model import get_processor
from swift.template import get_template

from swift_grpo_ext import testing


def test_token_types_are_as_many_as_tokens(digits, tmp_path):
    model = testing.tiny_checkpoint("glm4v_moe", tmp_path)
    host = testing.host_types(model)
    processor = get_processor(str(model), model_type=host["model_type"])
    template = get_template(processor, template_type=host["template"])
    template.set_mode("train")
    row = testing.read_jsonl(digits.train)[0]
    messages = [*row["messages"], {"role": "assistant", "content": "7"}]
    encoded = template.encode({"messages": messages, "images": row["images"]})
    types = encoded.get("mm_token_type_ids")
    assert types is None or types.shape[-1] == len(encoded["input_ids"])
