"""Sizes of models: published parameter counts, families with an arithmetic of their own, configs that are none."""

import json
import re
from dataclasses import replace

import pytest

from swift_grpo_ext.doctor.plan.catalogue import (
    bundled_name,
    find_config,
    loadable,
    published,
    require_config,
)
from swift_grpo_ext.doctor.plan.search import plans
from swift_grpo_ext.doctor.plan.setting import Machine, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.group.pack_memory import text_sizes


@pytest.mark.parametrize("name", published())
def test_parameters_are_those_of_the_published_checkpoints(name):
    """Of the model card; else of the name (Qwen3-VL-30B-A3B), which is rounded, or leaves the tower out."""
    model, shape = published()[name], shape_of(find_config(name))
    # Ovis2's files store the output layer although the models up to 4B share it with the embedding.
    stored = shape.total + (shape.embedding if name.startswith("Ovis") and not shape.head else 0)
    if model["billions"]:
        assert stored / 1e9 == pytest.approx(model["billions"], rel=0.003)
    else:
        named = {"GLM-4.5V": 106.0, "gemma-4-E2B": 5.1, "gemma-4-E4B": 8.0}.get(name) or float(
            re.findall(r"([\d.]+)b", name.lower())[0]
        )
        text = stored - shape.tower - shape.aligner
        counts = (stored, text, text - shape.embedding)  # what makers count when they name a model
        assert any(named == pytest.approx(count / 1e9, rel=0.1) for count in counts)


def test_every_size_names_where_it_was_read():
    assert all(re.match(r"https://(github\.com|huggingface\.co)/", m["source"]) for m in published().values())


@pytest.mark.parametrize(
    ("name", "tokens", "attending"),
    [
        ("Qwen3.5-35B-A3B", 980, 10),  # ten of forty layers keep keys and values
        ("Qwen3-VL-30B-A3B", 980, 48),
        ("InternVL3-8B", 1536, 28),  # five tiles of 448 pixels and the overview
        ("gemma-3-4b", 256, 34),
        ("gemma-4-26B-A4B", 280, 30),
        ("GLM-4.1V-9B", 1280, 40),
    ],
)
def test_families_have_their_own_arithmetic(name, tokens, attending):
    shape = shape_of(find_config(name))
    assert shape.vision.tokens(1_003_520) == tokens
    assert shape.text.attending == attending
    machine = Machine(gpus_per_node=8, gpu_memory=80)
    assert plans(shape, Work(max_pixels=602_112, rollouts=("colocate", "transformers")), machine)[0].fits


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
    assert bundled_name("Qwen/Qwen2.5-VL-72B-Instruct") == "Qwen2.5-VL-72B"
    assert bundled_name("/mnt/models/Qwen__Qwen2.5-VL-72B-Instruct/") == "Qwen2.5-VL-72B"
    assert bundled_name("thisisiron/Ovis2-2B-hf") == "Ovis2-2B"
    assert bundled_name("Qwen2.5-VL-7Bx") is None
    with pytest.raises(SwiftGrpoExtError, match=r"no config\.json"):
        require_config("nobody/knows-this")


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


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "nobody_knows"},
        {},
        {"model_type": "t5"},
        {"model_type": "clip"},
        {"model_type": "qwen2", "num_attention_heads": 0},
        {"model_type": "qwen2", "hidden_size": "big"},
        {"model_type": "idefics3"},
    ],
    ids=json.dumps,
)
def test_a_config_that_is_none_is_said_in_one_line(config):
    with pytest.raises(SwiftGrpoExtError, match="no model of type") as raised:
        shape_of(config)
    assert "\n" not in str(raised.value)


def test_remote_code_is_measured_by_its_language_model_and_its_towers_sizes():
    """The published totals: 16.4 B, 8.1 B and 8.7 B parameters."""
    for name, billions in (("Kimi-VL-A3B", 16.4), ("MiniCPM-V-2_6", 8.1), ("MiniCPM-V-4_5", 8.7)):
        shape = shape_of(require_config(name))
        assert shape.total / 1e9 == pytest.approx(billions, rel=0.01)
        assert shape.modules == ()  # remote code has names of its own
    assert shape.vision.tokens(1_003_520) == 6 * 64  # five slices and the whole image
