"""A checkpoint that transformers 4 has saved keeps its output layer under transformers 5."""

import json
import shutil

import pytest
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

from swift_grpo_ext.compat import registry, untied_head
from swift_grpo_ext.hugging_face.checkpoints import tie_as_saved

DEFECT = registry.patches()["F46-untied-head"].defect
affected = pytest.mark.skipif(bool(DEFECT.absent_because()), reason=DEFECT.absent_because() or "has it")


@pytest.fixture
def saved_by_4(tiny_qwen, tmp_path):
    """As transformers 4.57.6 writes it: what the language model's config says is not said around it."""
    folder = tmp_path / "saved_by_4"
    shutil.copytree(tiny_qwen, folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    assert config["text_config"]["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps({**config, "transformers_version": "4.57.6"}))
    return folder


def is_tied(model):
    return bool((model.lm_head.weight == model.get_input_embeddings().weight).all())


@affected
def test_stock_draws_the_output_layer_at_random_and_ours_does_not(prove, saved_by_4):
    from swift.model import get_model_processor

    proof = prove(untied_head.fix)
    assert not is_tied(Qwen2_5_VLForConditionalGeneration.from_pretrained(saved_by_4))
    proof.drift()
    proof.on()
    model, _ = get_model_processor(str(saved_by_4), model_type="qwen2_5_vl")
    assert is_tied(model)
    proof.off()


@affected
def test_what_is_said_around_counts_and_so_does_who_saved_it(saved_by_4):
    path = saved_by_4 / "config.json"
    fields = json.loads(path.read_text())
    for more in (
        {"tie_word_embeddings": False},
        {"transformers_version": "5.12.1"},
        {"transformers_version": None},
    ):
        path.write_text(json.dumps({**fields, **more}))
        assert not tie_as_saved(AutoConfig.from_pretrained(saved_by_4), saved_by_4)
    path.write_text(json.dumps(fields))
    assert tie_as_saved(AutoConfig.from_pretrained(saved_by_4), saved_by_4)


def test_a_config_that_has_no_such_field_is_left_as_it_is(tmp_path):
    """Of Qwen3-VL's language model and of Qwen2.5-Omni in transformers 5.12."""
    (tmp_path / "config.json").write_text(json.dumps({"transformers_version": "4.57.6"}))

    class Config:
        def get_text_config(self):
            return object()

    assert not tie_as_saved(Config(), tmp_path)


def test_no_release_leaves_the_output_layer_at_random(saved_by_4):
    """Whatever the release does: with the config that the patch hands on, weights are those that were saved."""
    config = AutoConfig.from_pretrained(saved_by_4)
    tie_as_saved(config, saved_by_4)
    assert is_tied(Qwen2_5_VLForConditionalGeneration.from_pretrained(saved_by_4, config=config))


def test_it_is_of_the_first_releases_of_transformers_5():
    assert DEFECT.absent_because({"ms-swift": "4.6.0", "transformers": "4.57.6"})
    assert not DEFECT.absent_because({"ms-swift": "4.6.0", "transformers": "5.12.1"})
    assert DEFECT.absent_because({"ms-swift": "4.6.0", "transformers": "5.16.0"})
