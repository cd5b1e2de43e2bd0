import functools
from contextlib import nullcontext

import pytest
import torch
from transformers import DynamicCache

from swift_grpo_ext.group.media import PIXELS, VIDEO_PIXELS, Medium
from swift_grpo_ext.group.prefill import find_distinct, shared_prefill
from swift_grpo_ext.hugging_face.release import FIFTH
from tests.group.models import FAMILIES, IDS, IMAGE, Picture, Qwen, batch_of
from tests.group.test_decoders import build

CAT, DOG = Picture(1), Picture(2)
VIDEO = IMAGE + IDS["qwen2_5_vl"].index("<|video_pad|>")
FRAMES = [17] * 4
MEDIA = (Medium(PIXELS, IMAGE), Medium(VIDEO_PIXELS, VIDEO))
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
        suppress_tokens=[one % model.config.get_text_config().vocab_size for one in (IMAGE, VIDEO)],
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
    with shared_prefill(model, MEDIA):
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
    with shared_prefill(model, MEDIA, tell=told.append):
        model(input_ids=inputs["input_ids"], inputs_embeds=None, labels=inputs["input_ids"])
    assert told == ["prompts were computed once for each completion: model inputs labels"]


def test_images_come_from_whoever_encodes_them(family, model):
    """Two prompts about one image: it is asked for once with each prompt's first row."""
    rows = [([5, CAT], [6])] * 2 + [([8, CAT], [9])] * 2
    inputs, _ = batch_of(family, model, rows, side="left")
    inputs.pop("position_ids", None)
    asked = []

    def encoding(wanted):
        asked.extend([images.keys[image] for image in which] for images, which in wanted)
        return nullcontext()

    with shared_prefill(model, MEDIA, encoding):
        greedy(model, inputs)
    assert len(asked) == 1
    assert len(asked[0]) == 2
    assert len(set(asked[0])) == 1


def film(seed, speed):
    """Inputs of one video of two pairs of frames, ``speed`` seconds apart."""
    grid = torch.tensor([[2, 2, 4]])
    pixels = torch.randn(16, 3 * 2 * 14 * 14, generator=torch.Generator().manual_seed(seed))
    return {VIDEO_PIXELS: pixels, "video_grid_thw": grid, "second_per_grid_ts": torch.tensor([float(speed)])}


def with_films(prompts, films, model):
    """Inputs of prompts whose `FRAMES` are the tokens of a video each; positions are the model's to find."""
    # Text until then: the rows' positions are asked for first, and transformers 4 has no video for them yet.
    inputs, _ = batch_of(Qwen, model, [(prompt, [8]) for prompt in prompts], side="left")
    inputs.pop("position_ids")
    where = inputs["input_ids"] == FRAMES[0]
    inputs["input_ids"][where] = VIDEO
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"][where] = 2
    return inputs | {name: torch.cat([one[name] for one in films]) for name in films[0]}


@pytest.mark.parametrize("with_image", [False, True])
@pytest.mark.parametrize("as_list", [False, True])
def test_videos_are_shared_where_pixels_and_speed_are_equal(with_image, as_list):
    model = Qwen.model().eval()
    films = [film(1, 1), film(1, 1), film(2, 1), film(1, 3), film(1, 1)]
    prompt = [5, *([CAT] * with_image), 6, 92, *FRAMES, 93, 7]
    inputs = with_films([prompt] * len(films), films, model)
    if as_list:
        inputs["second_per_grid_ts"] = inputs["second_per_grid_ts"].tolist()
    expected, seen, wanted = greedy(model, dict(inputs)), [], []
    model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["inputs_embeds"])), with_kwargs=True
    )

    def encoding(asked):
        wanted.extend(len(which) for _, which in asked)
        return nullcontext()

    with shared_prefill(model, MEDIA, encoding):
        assert torch.equal(greedy(model, dict(inputs)), expected)
    assert seen == [3, *[len(films)] * 5]
    assert wanted == [3] * (1 + with_image)


def test_a_video_of_a_model_that_takes_none_goes_the_usual_way_and_is_told():
    model, told = Qwen.model().eval(), []
    inputs = with_films([[5, 92, *FRAMES, 93]] * 2, [film(1, 1)] * 2, model)
    inputs.pop("second_per_grid_ts")
    with shared_prefill(model, MEDIA[:1], tell=told.append):
        greedy(model, inputs)
    assert told == [f"prompts were computed once for each completion: model inputs {VIDEO_PIXELS}"]


@pytest.mark.parametrize("name", ["gemma3", "mistral with a window", "qwen3_5", "qwen3_next", "deepseek_v3"])
def test_every_kind_of_cache_is_spread(name):
    model = build(name).eval()
    prompts = [[0, 5, 6, 7, 8, 9], [0, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15], [0, 5, 6, 7, 8, 9]]
    ids = torch.tensor(prompts)
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    expected = greedy(model, inputs)
    seen, told = [], []
    handle = model.get_decoder().register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    with shared_prefill(model, (), tell=told.append):
        found = greedy(model, inputs)
    handle.remove()
    assert torch.equal(found, expected)
    if (
        name == "qwen3_next" and not FIFTH
    ):  # makes a cache of its own kind in the forward, which knows no rows
        usual = "prompts were computed once for each completion: "
        assert told == [f"{usual}generation without a cache of keys and values"]
    else:
        assert seen == [2, *[4] * 5]
        assert told == []


@pytest.mark.parametrize("speeds", [[], torch.tensor([])])
def test_speeds_of_no_video_are_left_alone(speeds):
    ids = torch.tensor([[5, 6, 7], [5, 6, 7], [5, 6, 8]])
    inputs = {"input_ids": ids, "second_per_grid_ts": speeds, "past_key_values": DynamicCache()}
    found = find_distinct(inputs, MEDIA)
    assert found.row_of == [0, 0, 1]
    assert found.inputs["input_ids"].tolist() == [[5, 6, 7], [5, 6, 8]]
    assert found.inputs["second_per_grid_ts"] is speeds


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_next"])
def test_recurrent_states_can_be_updated_where_a_forward_leaves_inference_mode(name):
    """As under ZeRO-3 without gathering: ``generate`` is in inference mode, each forward is not."""
    model = build(name).eval()
    ids = torch.tensor([[5, 6, 7, 8]] * 3)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    expected = greedy(model, inputs)
    forward = model.forward

    @functools.wraps(forward)
    def outside(*args, **kwargs):
        with torch.inference_mode(False), torch.no_grad():
            return forward(*args, **kwargs)

    model.forward = outside
    with torch.inference_mode(), shared_prefill(model, ()):
        found = greedy(model, inputs)
    assert torch.equal(found, expected)
