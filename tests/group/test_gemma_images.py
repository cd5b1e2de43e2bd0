"""Gemma 3 and 4: the tokens of an image see each other, in a pack as in the rows."""

import pytest
import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.micro_batch import pack_inputs
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from tests.group.batches import collate
from tests.group.test_decoders import SIZES, VOCAB
from tests.group.test_forward import gradients, relative, stock_logps
from tests.precision import DOUBLE, in_float64

IMAGE = 40
PROMPT = [5, *[IMAGE] * 6, 6, 7]
ROWS = {
    "in the prompt": [(PROMPT, [8, 9, 10, 11]), (PROMPT, [12]), (PROMPT, [13, 14, 15])],
    "in a completion": [
        (PROMPT, ([8, 9, *[IMAGE] * 4, 10, 11], [1, 1, 0, 0, 0, 0, 1, 1])),
        (PROMPT, ([12, 13], [1, 1])),
    ],
    "in turns that rows share": [
        (PROMPT, ([8, 9, *[IMAGE] * 4, 10, 11, 17], [1, 1, 0, 0, 0, 0, 1, 1, 1])),
        (PROMPT, ([8, 9, *[IMAGE] * 4, 10, 12, *[IMAGE] * 3, 13], [1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1])),
        (PROMPT, ([8, 9, *[IMAGE] * 4, 10, 12, 14, 15], [1, 1, 0, 0, 0, 0, 1, 1, 1, 1])),
        (PROMPT, ([8, 16, 17], [1, 1, 1])),
    ],
    "no image": [([5, 6, 7], [8, 9, 10]), ([5, 6, 7], [11])],
}


@pytest.fixture(scope="module", params=[None, 3, 64], ids=["no window", "window 3", "long window"])
def model(request):
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    text = {**SIZES, "head_dim": 8, "query_pre_attn_scalar": 8, "layer_types": kinds}
    text |= {"sliding_window": request.param or 64}
    vision = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = Gemma3Config(text_config=text, vision_config={**vision, "image_size": 28, "patch_size": 14})
    torch.manual_seed(0)
    interface.install("sdpa")
    return Gemma3ForConditionalGeneration._from_config(config, attn_implementation="sdpa").double().train()


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


@pytest.mark.parametrize("backend", ["dense", "sdpa"])
@pytest.mark.parametrize("case", sorted(ROWS))
def test_a_pack_has_the_log_probs_and_gradients_of_its_rows(model, case, backend):
    inputs = collate(ROWS[case])
    mask = inputs.pop("completion_mask")
    inputs["token_type_ids"] = (inputs["input_ids"] == IMAGE).long()
    stock = stock_logps(model, inputs, mask)
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    form = interface.pack_form(model.config.get_text_config(), backend, "all")
    pack = build_pack(rows, inputs["input_ids"], mask, form, inputs["token_type_ids"], worth=1)
    assert max(node.level for node in pack.layout.nodes) >= (3 if case == "in turns that rows share" else 1)
    assert (pack.layout.blocks is not None) == (case != "no image")
    ours = packed_scores(model, model.lm_head, pack_inputs(inputs, pack, {}), pack, vocab_size=VOCAB)[..., 0]
    torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
    assert relative(gradients(model, ours), gradients(model, stock)) < DOUBLE
