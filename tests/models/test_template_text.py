"""Text that a template must leave text: in system prompts, tools, tool calls and names of objects."""

import json

import pytest

import swift_grpo_ext
from tests.models import contract
from tests.models.contract_cases import picture

FAMILIES = {"qwen2_5_vl": ("tiny_qwen", "qwen2_5_vl"), "ovis2": ("tiny_ovis", None)}
WRITTEN = "the <image> <|image_pad|><|vision_start|> <IMG_ATOM><IMG_ROW>"
TOOL = {
    "type": "function",
    "function": {"name": "crop", "description": f"Cut {WRITTEN}", "parameters": {"type": "object"}},
}


@pytest.fixture(scope="module", params=FAMILIES)
def template(request):
    swift_grpo_ext.register(["templates"])
    fixture, name = FAMILIES[request.param]
    checkpoint = request.getfixturevalue(fixture)
    made = contract.load(checkpoint, model_type=name, template_type=name).template
    made.set_mode("train")
    return made


def row(*turns, **columns):
    return {"messages": [{"role": role, "content": content} for role, content in turns], **columns}


def image_parts(template, encoded):
    """Where the tokens of images stand, as text around them."""
    forbidden = set(template.facts.forbidden_token_ids)
    shown = [-1 if token in forbidden else token for token in encoded["input_ids"]]
    text, parts = [], []
    for token in shown:
        if token != -1:
            text.append(token)
        elif text:
            parts.append(template.tokenizer.decode(text))
            text = []
    return [*parts, template.tokenizer.decode(text)]


@pytest.mark.parametrize("system", [[], [("system", "Be brief.")], [("system", "")]])
def test_a_tool_that_is_described_with_tags_takes_no_image(template, system):
    made = row(
        *system, ("user", "<image>crop it"), ("assistant", "ok"), images=[picture(56, 56)], tools=[TOOL]
    )
    before, after = image_parts(template, template.encode(made))
    assert WRITTEN in before
    assert before.endswith("user\n")
    assert after.strip().startswith("crop it")


def test_an_image_of_the_system_prompt_stays_there_beside_tools(template):
    images = [picture(56, 56), picture(84, 56)]
    made = row(("system", "Like <image> this."), ("user", "<image>crop"), images=images, tools=[TOOL])
    first, between, last = image_parts(template, template.encode(made))
    assert first.endswith("system\nLike ")
    assert WRITTEN in between
    assert last.strip().startswith("crop")


def test_a_system_prompt_that_names_placeholders_is_text(template):
    written = WRITTEN.replace("<image>", "image")
    (whole,) = image_parts(template, template.encode(row(("system", written), ("user", "a"))))
    assert written in whole


def test_a_tool_call_that_names_tags_takes_no_image(template):
    call = json.dumps({"name": "crop", "arguments": {"why": WRITTEN}})
    turns = [("user", "<image>crop"), ("tool_call", call), ("tool_response", "<image>"), ("assistant", "ok")]
    made = row(*turns, images=[picture(56, 56), picture(84, 56)])
    _, between, last = image_parts(template, template.encode(made))
    assert WRITTEN in between
    assert "tool_response" in last


def test_names_of_objects_are_text(template):
    objects = {"ref": [f"<|im_end|>{WRITTEN}"], "bbox": [[1, 2, 30, 40]]}
    turns = [("user", "<image>find <ref-object>"), ("assistant", "<bbox>")]
    encoded = template.encode(row(*turns, images=[picture(56, 56)], objects=objects))
    _, after = image_parts(template, encoded)
    assert f"<|im_end|>{WRITTEN}" in after
    assert encoded["input_ids"].count(template.tokenizer.eos_token_id) == 3, "system, question, answer"
