"""A row of GLM-4.5V has no token types, or one for each of its tokens."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.compat import media_token_types
from swift_grpo_ext.hugging_face.release import FIFTH
from tests.models import contract


@pytest.mark.skipif(not FIFTH, reason="transformers 4 gives no token types of images")
def test_token_types_are_those_of_the_row(prove, digits, tmp_path):
    model = testing.tiny_checkpoint("glm4v_moe", tmp_path)
    host = testing.host_types(model)
    subject = contract.load(model, model_type=host["model_type"], template_type=host["template"])
    subject.template.set_mode("train")
    row = testing.read_jsonl(digits.train)[0]
    answered = {**row, "messages": [*row["messages"], {"role": "assistant", "content": "7"}]}

    def numbers():
        encoded = subject.template.encode({name: answered[name] for name in ("messages", "images")})
        types = encoded.get("mm_token_type_ids")
        return len(encoded["input_ids"]), None if types is None else types.shape[-1]

    proof = prove(media_token_types.fix)
    tokens, types = numbers()
    assert types < tokens
    proof.drift()
    proof.on()
    assert numbers() == (tokens, None)
    proof.off()
