"""Completions that hold tokens of images, and turns that add images."""

from types import SimpleNamespace

import pytest
import sweep.runner as runner
from pairs.cases import cut
from sweep import inputs
from sweep.table import Configuration
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns
from transformers import Ovis2Config, Qwen2_5_VLConfig

from swift_grpo_ext.errors import RolloutError
from swift_grpo_ext.trainer.rollout import Rollout, check_media
from swift_grpo_ext.trainer.samples import VisionSample
from tests.conftest import built_once
from tests.trainer.runs import told

QWEN = Qwen2_5_VLConfig(image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)
OVIS = Ovis2Config(image_token_id=3, visual_indicator_token_ids=[5, 6, 7, 8, 9])


def trainable(config, tokens):
    """A completion of these tokens, as it goes on to the rewards, and what was said of it."""
    tokenizer = SimpleNamespace(eos_token_id=2, pad_token_id=0, decode=str, added_tokens_decoder={})
    host = SimpleNamespace(
        template=SimpleNamespace(
            config=config, tokenizer=tokenizer
        ),  # and no more: Megatron's trainer has less
        args=SimpleNamespace(use_vllm=True),
        multi_turn_scheduler=None,
        enable_server_multi_turn=False,
    )
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x"}]
    with told() as said:
        (sample,) = Rollout(host).trainable([VisionSample(messages=messages, response_token_ids=tokens)])
    return sample.response_token_ids, sample.held_placeholder, said


def test_indicators_alone_are_words():
    ids, held, said = trainable(QWEN, [11, 5, 6, 12])
    assert (ids, held) == ([11, 5, 6, 12], False)
    assert "the model reads them as text, so they are scored and trained on" in said[0]
    assert trainable(QWEN, [[11, 5], [6]])[:2] == ([[11, 5], [6]], False)


def test_an_image_between_them_is_cut():
    assert trainable(QWEN, [11, 5, 3, 6, 12])[:2] == ([11, 5], True)


def test_indicators_that_the_model_reads_are_cut():
    assert trainable(OVIS, [11, 5, 9, 12])[:2] == ([11], True)


class TagsAlone(MultiTurnScheduler):
    """Asks for a look at an image that it does not hand over."""

    def step(self, infer_request, response_choice, current_turn):
        infer_request.messages.append({"role": "user", "content": "<image>And this?"})
        return {"infer_request": infer_request}


def test_a_row_of_text_that_spells_tags_is_text_until_a_scheduler_adds_one():
    spelled = [{"role": "user", "content": "What is <image>?"}, {"role": "assistant", "content": "A tag."}]
    added = [*spelled, {"role": "user", "content": "<image>And this?"}]
    check_media(VisionSample(messages=spelled))
    with pytest.raises(RolloutError, match="1 <image> tags for 0 images"):
        check_media(VisionSample(messages=added))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen2_vl"])
def test_a_tag_that_a_scheduler_adds_needs_an_image(family, shared_folder, tmp_path, monkeypatch):
    """Of a template of ours, and of ms-swift's own, which trains on the tag as text."""
    monkeypatch.setitem(multi_turns, "tags_alone", TagsAlone)
    model = built_once(shared_folder / "sweep" / f"{family}-float32-0", inputs.MODELS[family])
    data = built_once(shared_folder / "sweep" / "image", inputs.DATA["image"]) / "pictures.jsonl"
    turns = {"multi_turn_scheduler": "tags_alone", "max_turns": 2}
    options = {**cut(4), **turns, **inputs.types(family)}
    with pytest.raises(RolloutError, match=r"2 <image> tags for 1 images.*rollout_infos"):
        runner.record("Ours", Configuration(options, family), model, data, tmp_path)
