"""Every family through vLLM on the CPU: it samples what the trainer's model would, and no placeholder.

`FAMILIES` drives it; tools/families_page.py reads from it which families are on in vLLM, and why others are not.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.testing.families.sizes import INTERLEAVED, ROPE
from tests.engines.conftest import compared, faults, grpo_with_vllm

pytestmark = [pytest.mark.lane, pytest.mark.timeout(900)]

# vLLM's attention on a CPU has no heads of 16.
WIDER = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
SECTIONS = {"mrope_section": [8, 4, 4]}  # of 32 channels
MROPE = {**ROPE, **SECTIONS}
LACED = {**INTERLEAVED, **SECTIONS}
WHOLE = {"partial_rotary_factor": 1.0}
# vLLM's gated delta nets on a CPU are in bf16, with heads of the published size.
DELTA = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
HYBRID = {**WIDER, **DELTA, "rope_parameters": {**LACED, **WHOLE}}
BF16 = {"torch_dtype": "bfloat16", "bf16": True}
TOLERANCE = 1e-3  # as in test_rollouts.py, and with as large a vocabulary


@dataclass(frozen=True)
class Tried:
    """How a family is tried: what vLLM needs of the tiny model and the run, and how it refuses all the same."""

    text: Mapping[str, Any] = field(default_factory=lambda: WIDER)
    run: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None  # changes the checkpoint's folder
    refusal: str = ""  # what the run ends with
    reason: str = ""  # the same in the words of docs/families.md


def siglip_names(model: Path) -> None:
    """Name the tower's weights as published checkpoints do; transformers 5.19 saves them without ``vision_model``."""
    from safetensors.torch import load_file, save_file

    path = model / "model.safetensors"
    named = {
        name.replace("vision_tower.", "vision_tower.vision_model."): weights
        for name, weights in load_file(path).items()
    }
    save_file(named, path, metadata={"format": "pt"})


def gemma_names(model: Path) -> None:
    """Let tokens be named as Gemma's for one to four new lines, which vLLM looks up, and weights as published."""
    siglip_names(model)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {"\n" * number: vocabulary.pop(f"filler{number + 1000}") for number in range(1, 5)}
    path.write_text(json.dumps(tokenizer))


# vLLM ties embeddings by the language model's config, transformers by the one around it: tiny ones say it twice.
FAMILIES = {
    "llama": Tried(),
    "mistral": Tried(),
    "qwen3_moe": Tried(),
    "qwen2_vl": Tried({**WIDER, "rope_scaling": {"type": "mrope", **SECTIONS}}),
    "qwen2_5_vl": Tried({}),
    "qwen3_vl": Tried({**WIDER, "rope_parameters": LACED}),
    "qwen3_next": Tried({**WIDER, **DELTA}, BF16),
    "qwen3_5": Tried({**HYBRID, "tie_word_embeddings": True}, BF16),
    "qwen3_5_moe": Tried(HYBRID, BF16),
    "minicpmv4_6": Tried(HYBRID, BF16),
    "mistral3": Tried(),
    "internvl": Tried(),
    "gemma3": Tried(prepare=gemma_names),
    "llava_onevision": Tried(prepare=siglip_names),
    # vLLM asks for this, which transformers' config leaves out.
    "glm4v_moe": Tried({**WIDER, "rope_parameters": {**MROPE, **WHOLE}, "use_qk_norm": False}),
    "qwen2_5_omni": Tried({**WIDER, "rope_parameters": MROPE, "tie_word_embeddings": False}),
    "qwen3_vl_moe": Tried(
        {**WIDER, "rope_parameters": LACED, "norm_topk_prob": True},
        refusal="The size of tensor a (32) must match the size of tensor b (64)",
        reason="vLLM 0.32 loads experts transposed to those of transformers 5.19 (sizes do not match)",
    ),
    "deepseek_v3": Tried(
        {
            "topk_method": "noaux_tc",
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
        },
        {"vllm_engine_kwargs": {"attention_backend": "CPU_MLA"}},
        refusal="KeyError: 'layers.1.mlp.experts.gate_up_proj'",
        reason="ms-swift 4.6.0 syncs experts as one tensor, vLLM 0.32's class loads them one by one (KeyError)",
    ),
}
ON = {name: tried for name, tried in FAMILIES.items() if not tried.refusal}
REFUSED = {name: tried for name, tried in FAMILIES.items() if tried.refusal}


def data_of(family, digits, folder):
    """Rows with an image each, or for a language model without."""
    if TINY[family].vision:
        return digits
    rows = [{**row, "images": []} for row in testing.read_jsonl(digits.train)]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row).replace("<image>", "") + "\n" for row in rows))
    return replace(digits, train=path)


@pytest.fixture
def train(digits, tmp_path):
    """`train(family)`: two steps with rollouts by a tempted vLLM, the second after a weight sync."""

    def train(family):
        tried, model = FAMILIES[family], tmp_path / "model"
        testing.tiny_checkpoint(family, model, stock_vocabulary=True, **tried.text)
        if tried.prepare:
            tried.prepare(model)
        options = {"vllm_mode": "colocate", "learning_rate": 1e-2, "max_steps": 2, **tried.run}
        return grpo_with_vllm(model, data_of(family, digits, tmp_path), tmp_path, {}, **options)

    return train


@pytest.mark.parametrize("family", ON)
def test_rollouts_are_the_policys_and_hold_no_placeholder(family, train):
    run = train(family)
    assert all(row["tokens"] > 0 and row["forbidden"] == 0 for row in run.rollouts)
    assert {row["step"] for row in run.logps} == {0, 1}
    assert all(step["grad_norm"] > 0 for step in run.steps)
    assert faults(run) == []
    assert len(compared(run)) == 2
    if "bf16" not in FAMILIES[family].run:
        assert max(row["distance"] for row in run.logps) < TOLERANCE


@pytest.mark.parametrize("family", REFUSED)
def test_a_run_of_what_is_off_ends_with_the_reason(family, train):
    with pytest.raises(HostRunError, match=re.escape(FAMILIES[family].refusal)):
        train(family)
