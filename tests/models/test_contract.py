"""Both families against the contract that the package offers for any template."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swift_grpo_ext
from swift_grpo_ext.testing import contract
from swift_grpo_ext.testing.contract_cases import Case

FAMILIES = {"qwen2_5_vl": ("tiny_qwen", "qwen2_5_vl"), "ovis2": ("tiny_ovis", None)}


@pytest.fixture(scope="module", params=FAMILIES)
def subject(request):
    swift_grpo_ext.register(["templates"])
    fixture, name = FAMILIES[request.param]
    return contract.load(request.getfixturevalue(fixture), model_type=name, template_type=name)


@pytest.mark.parametrize("check", contract.CHECKS.values(), ids=contract.CHECKS)
def test_contract(subject, check):
    check(subject)


def test_tokens_of_an_image_beyond_the_limits_of_the_checkpoint(subject):
    contract.check_tokens(subject, (Case("large", ("<image>What is it?",), ((1300, 900),)),))


PIECES = st.sampled_from(
    [
        "<|im_end|>",
        "<|im_start|>",
        "<|image_pad|>",
        "<IMG_ATOM>",
        "<IMG_ROW>",
        "<|",
        "|>",
        "<",
        "im_end",
        "a ",
        "数",
    ]
)


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=8))
def test_no_text_becomes_a_control_token(subject, pieces):
    contract.check_special_text(subject, ("x" + "".join(pieces) + "x",))
