from contextlib import nullcontext

import pytest
import torch

from swift_grpo_ext.group.prefill import shared_prefill
from tests.group.models import FAMILIES, IMAGE, Picture, batch_of
from tests.group.test_decoders import build

CAT, DOG = Picture(1), Picture(2)
PROMPTS = {
    "one group": [[5, CAT, 6, 7]] * 4,
    "two groups": [[5, CAT, 6, 7]] * 2 + [[8, DOG, 9]] * 3,
    "same text, other image": [[5, CAT, 6]] * 2 + [[5, DOG, 6]] * 2,
    "text only": [[5, 6, 7]] * 3 + [[8]],
    "nothing repeated": [[5, CAT, 6], [7, 8]],
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def model(family):
    return family.model().eval()


def greedy(model, inputs):
    return model.generate(
        **inputs,
        max_new_tokens=6,
        do_sample=False,
        suppress_tokens=[IMAGE % model.config.get_text_config().vocab_size],
        eos_token_id=None,
    )


@pytest.mark.parametrize("prompts", sorted(PROMPTS))
def test_greedy_tokens_are_the_same(family, model, prompts):
    rows = [(prompt[:-1], [prompt[-1]]) for prompt in PROMPTS[prompts]]
    inputs, _ = batch_of(family, model, rows, side="left")
    inputs.pop("position_ids", None)
    expected = greedy(model, inputs)
    seen = []
    handle = model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["inputs_embeds"])), with_kwargs=True
    )
    with shared_prefill(model, IMAGE):
        found = greedy(model, inputs)
    handle.remove()
    assert torch.equal(found, expected)
    distinct = len({tuple(map(str, prompt)) for prompt in PROMPTS[prompts]})
    assert seen[0] == distinct
    assert set(seen[1:]) == {len(rows)}
    assert "forward" not in vars(model)


def test_an_input_nobody_knows_goes_the_usual_way_and_is_told(family, model):
    rows = [([5, 6], [7])] * 3
    inputs, _ = batch_of(family, model, rows, side="left")
    told = []
    with shared_prefill(model, IMAGE, tell=told.append):
        model(input_ids=inputs["input_ids"], inputs_embeds=None, labels=inputs["input_ids"])
    assert told == ["prompts were computed once for each completion: model inputs labels"]


def test_images_come_from_whoever_encodes_them(family, model):
    """Two prompts about one image: it is asked for once with each prompt's first row."""
    rows = [([5, CAT], [6])] * 2 + [([8, CAT], [9])] * 2
    inputs, _ = batch_of(family, model, rows, side="left")
    inputs.pop("position_ids", None)
    asked = []

    def encoding(images, which):
        asked.append([images.keys[image] for image in which])
        return nullcontext()

    with shared_prefill(model, IMAGE, encoding):
        greedy(model, inputs)
    assert len(asked) == 1
    assert len(asked[0]) == 2
    assert len(set(asked[0])) == 1


@pytest.mark.parametrize("name", ["gemma3", "mistral with a window", "qwen3_5", "qwen3_next", "deepseek_v3"])
def test_every_kind_of_cache_is_spread(name):
    model = build(name).eval()
    prompts = [[0, 5, 6, 7, 8, 9], [0, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15], [0, 5, 6, 7, 8, 9]]
    ids = torch.tensor(prompts)
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    expected = greedy(model, inputs)
    seen = []
    handle = model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    with shared_prefill(model, None):
        found = greedy(model, inputs)
    handle.remove()
    assert torch.equal(found, expected)
    assert seen == [2, *[4] * 5]
