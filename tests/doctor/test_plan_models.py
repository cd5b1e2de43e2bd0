"""Sizes of models: published parameter counts, families with an arithmetic of their own, configs that are none."""

import json
import re
from dataclasses import replace

import pytest

from swift_grpo_ext.doctor.plan.models import (
    find_config,
    loadable,
    published,
    published_name,
    require_config,
)
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.group.pack_memory import text_sizes

# Of the model cards, in 1e9; of others the name tells.
CARDS = {
    **{"Qwen2.5-VL-3B": 3.75, "Qwen2.5-VL-7B": 8.29, "Qwen2.5-VL-32B": 33.45, "Qwen2.5-VL-72B": 73.41},
    **{"Qwen2-VL-2B": 2.21, "Qwen2-VL-7B": 8.29, "Qwen2-VL-72B": 73.41},
    **{"Ovis2-1B": 1.27, "Ovis2-2B": 2.46, "Ovis2-4B": 4.62},
    **{"Ovis2-8B": 8.94, "Ovis2-16B": 16.2, "Ovis2-34B": 34.9},
}


@pytest.mark.parametrize("name", published())
def test_parameters_are_those_of_the_published_checkpoints(name):
    """Of the model card; else of the name (Qwen3-VL-30B-A3B), which is rounded, or leaves the tower out."""
    shape = shape_of(find_config(name))
    # Ovis2's files store the output layer although the models up to 4B share it with the embedding.
    stored = shape.total + (shape.embedding if name.startswith("Ovis") and not shape.head else 0)
    if name in CARDS:
        assert stored / 1e9 == pytest.approx(CARDS[name], rel=0.003)
    else:
        named = float(re.findall(r"([\d.]+)b", name.lower())[0])
        text = stored - shape.tower - shape.aligner
        counts = (stored, text, text - shape.embedding)  # what makers count when they name a model
        assert any(named == pytest.approx(count / 1e9, rel=0.1) for count in counts)


@pytest.mark.parametrize(
    ("name", "tokens", "attending"),
    [
        ("Qwen3.5-35B-A3B", 980, 10),  # ten of forty layers keep keys and values
        ("Qwen3-VL-30B-A3B", 980, 48),
        ("InternVL3-8B", 1536, 28),  # five tiles of 448 pixels and the overview
    ],
)
def test_families_have_their_own_arithmetic(name, tokens, attending):
    shape = shape_of(find_config(name))
    assert shape.vision.tokens(1_003_520) == tokens
    assert shape.text.attending == attending


def test_a_token_meets_few_experts_and_the_scan_of_a_hybrid_layer():
    dense, experts = (shape_of(find_config(f"Qwen3.5-{size}")).text for size in ("9B", "35B-A3B"))
    assert experts.intermediate == 8 * 512 + 512
    assert experts.routed == 8
    assert dense.recurrent > 0
    assert replace(dense, recurrent=0, states=0).recomputed("lora") < dense.recomputed("lora")


def test_latent_attention_builds_whole_keys():
    sizes = text_sizes(
        {
            "num_hidden_layers": 27,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "intermediate_size": 11264,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 6,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "vocab_size": 163840,
        }
    )
    assert (sizes.query, sizes.kv) == (16 * 192, 16 * 160)
    assert sizes.intermediate == 11264  # of the dense first layer: more than six experts and two shared


def test_names_are_found_however_they_are_spelled():
    assert published_name("Qwen/Qwen2.5-VL-72B-Instruct") == "Qwen2.5-VL-72B"
    assert published_name("/mnt/models/Qwen__Qwen2.5-VL-72B-Instruct/") == "Qwen2.5-VL-72B"
    assert published_name("thisisiron/Ovis2-2B-hf") == "Ovis2-2B"
    assert published_name("Qwen2.5-VL-7Bx") is None


def test_a_size_alone_is_no_model_that_ms_swift_knows(tmp_path, monkeypatch):
    assert loadable("qwen2.5-vl-72b") == "Qwen/Qwen2.5-VL-72B-Instruct"
    assert loadable("Ovis2-1B") == "thisisiron/Ovis2-1B-hf"
    assert loadable("Ovis2-1B-hf") == "thisisiron/Ovis2-1B-hf"
    for model in ("Qwen/Qwen2.5-VL-72B-Instruct", "me/Ovis2-1B", "/models/Ovis2-1B", "qwen2_5_vl"):
        assert loadable(model) == model
    (tmp_path / "Ovis2-1B").mkdir()
    monkeypatch.chdir(tmp_path)
    assert loadable("Ovis2-1B") == "Ovis2-1B"


def test_every_bundled_name_is_a_model_of_the_host_or_of_ours():
    from swift.model import MODEL_MAPPING

    from swift_grpo_ext.models.ovis2 import register

    register()
    known = {
        model.hf_model_id
        for meta in MODEL_MAPPING.values()
        for group in meta.model_groups
        for model in group.models
    }
    assert {loadable(name) for name in published()} <= known


NOT_BUILT, NOT_KNOWN = "no model of type", "has no model type"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "nobody_knows"}, NOT_KNOWN),
        ({}, NOT_KNOWN),
        ({"model_type": "t5"}, NOT_BUILT),
        ({"model_type": "clip"}, NOT_BUILT),
        ({"model_type": "qwen2", "num_attention_heads": 0}, NOT_BUILT),
        ({"model_type": "qwen2", "hidden_size": "big"}, NOT_BUILT),
        ({"model_type": "idefics3"}, NOT_BUILT),
        ({"model_type": "kimi_vl", "text_config": {"model_type": "deepseek_v3"}}, NOT_KNOWN),
    ],
    ids=json.dumps,
)
def test_a_config_that_is_none_is_said_in_one_line(config, said):
    with pytest.raises(SwiftGrpoExtError, match=said) as raised:
        shape_of(config)
    assert "\n" not in str(raised.value)


def test_a_config_json_is_loaded_by_its_folder(tmp_path):
    assert loadable(str(tmp_path / "config.json")) == str(tmp_path)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "nosuch/config.json"])
def test_a_name_like_no_other_gets_no_guess(name):
    with pytest.raises(SwiftGrpoExtError) as raised:
        require_config(name)
    assert raised.value.what == "no config.json and no size of this name"
