"""Families against the contract of any template: all of it for our templates, and
what does not depend on how ms-swift's own write and resize for the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.models import contract
from tests.models.contract_cases import CASES, Case

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


@settings(max_examples=60)
@given(pieces=st.lists(PIECES, min_size=1, max_size=8))
def test_no_text_becomes_a_control_token(subject, pieces):
    contract.check_special_text(subject, ("x" + "".join(pieces) + "x",))


ONE_TURN = tuple(CASES[number] for number in (0, 1, 3, 4))
CHECKS = {
    "tokens": lambda subject: contract.check_tokens(subject, ONE_TURN),
    "logits": lambda subject: contract.check_logits(subject, ONE_TURN),
    "engine_prompt": lambda subject: contract.check_engine_prompt(subject, ONE_TURN),
    **{name: contract.CHECKS[name] for name in ("batches", "slices", "save_and_load", "lora")},
}
# What ms-swift's own collators cannot do: rows of one image beside rows of several, images of several sizes.
CRASHES = {("llava_onevision", "batches"), ("llava_onevision", "slices"), ("mistral3", "batches")}
# Gemma's processor leaves out which tokens are images; Mistral's template has a system prompt of the day; and
# slices of Mistral's and MiniCPM's pixels do not stand along the first axis, as the check has it. Voices of Omni
# are in a file that ms-swift's trainer copies.
NOT_COMPARED = {
    ("gemma3", "logits"),
    ("mistral3", "tokens"),
    ("mistral3", "logits"),
    ("mistral3", "slices"),
    ("minicpmv4_6", "slices"),
    ("qwen2_5_omni", "save_and_load"),
}


OTHERS = sorted(name for name, made in TINY.items() if made.vision and name not in FAMILIES)
PAIRS = [(name, check) for name in OTHERS for check in CHECKS if (name, check) not in NOT_COMPARED]


@pytest.fixture(scope="module")
def other(request, shared_folder):
    swift_grpo_ext.register(["compat", "templates"])
    name = request.param
    model = built_once(shared_folder / f"tiny_{name}", lambda folder: testing.tiny_checkpoint(name, folder))
    host = testing.host_types(model)
    return name, contract.load(model, model_type=host["model_type"], template_type=host["template"])


@pytest.mark.slow
@pytest.mark.parametrize(("other", "check"), PAIRS, indirect=["other"])
def test_families_with_templates_of_ms_swift(other, check):
    name, subject = other
    if (name, check) in CRASHES:
        with pytest.raises(RuntimeError, match=r"must (have same number|match except)"):
            CHECKS[check](subject)
    else:
        CHECKS[check](subject)
