"""Each form in which an encoder answers is read, and other features are put into the same form."""

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from swift_grpo_ext.group.tower_calls import features_of
from swift_grpo_ext.hugging_face.answers import in_form, parts_of

TWO_IMAGES = torch.arange(20.0).reshape(5, 4)
DEEPER = [TWO_IMAGES + 100, TWO_IMAGES + 200]
TILES = torch.arange(24.0).reshape(3, 2, 4)
INDICATORS = torch.ones(5, 4)
FORMS = {
    "tensor": (TWO_IMAGES, TWO_IMAGES),
    "4, one for each image": (TWO_IMAGES.split([2, 3]), TWO_IMAGES),
    "4, a list of one": ([TWO_IMAGES], TWO_IMAGES),
    "4, deepstack": ((TWO_IMAGES, DEEPER), torch.cat([TWO_IMAGES, *DEEPER], -1)),
    "4, indicators": ((TILES, INDICATORS), TILES),
    "5": (BaseModelOutputWithPooling(pooler_output=TWO_IMAGES, last_hidden_state=TILES), TWO_IMAGES),
    "5, one for each image": (BaseModelOutputWithPooling(pooler_output=TWO_IMAGES.split([2, 3])), TWO_IMAGES),
}


@pytest.mark.parametrize("name", FORMS)
def test_features_are_one_tensor(name):
    answer, expected = FORMS[name]
    assert torch.equal(features_of(answer), expected)


@pytest.mark.parametrize("name", FORMS)
def test_others_are_put_into_the_same_form(name):
    answer, expected = FORMS[name]
    number = len(parts_of(answer).deeper)
    own, *deeper = (expected[:1] + 7).chunk(1 + number, -1)
    other = in_form(answer, own, deeper)
    assert type(other) is type(answer)
    assert torch.equal(features_of(other), expected[:1] + 7)
    if name == "4, indicators":
        assert other[1] is INDICATORS
