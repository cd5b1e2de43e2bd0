"""vLLM gets the prompt that InternVL is trained on, with the new line after each image."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.compat import image_newline
from tests.models import contract
from tests.models.test_contract import ONE_TURN


def test_a_prompt_of_vllm_is_the_one_that_is_trained_on(prove, tmp_path):
    model = testing.tiny_checkpoint("internvl", tmp_path)
    host = testing.host_types(model)
    subject = contract.load(model, model_type=host["model_type"], template_type=host["template"])
    proof = prove(image_newline.fix)
    with pytest.raises(AssertionError, match="an engine would see"):
        contract.check_engine_prompt(subject, ONE_TURN)
    proof.drift()
    proof.on()
    contract.check_engine_prompt(subject, ONE_TURN)
    proof.off()
