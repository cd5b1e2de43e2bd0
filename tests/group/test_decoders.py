"""Every kind of decoder that transformers has takes packs: log-probs and gradients are those of the rows."""

import pytest
import torch
import transformers

from swift_grpo_ext.group import interface, recurrent
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.micro_batch import pack_inputs
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from swift_grpo_ext.group.tree import WORTH
from swift_grpo_ext.hugging_face.release import INSTALLED
from tests.group.batches import collate
from tests.group.test_forward import gradients, relative, stock_logps
from tests.precision import DOUBLE, in_float64

VOCAB = 64
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "attn_implementation": "sdpa",
}
WINDOW = {"sliding_window": 4}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 12,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
HYBRID = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "head_dim": 8,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}
# Class and what its config has beside the sizes.
DECODERS = {
    "cohere2": ("Cohere2", {**WINDOW, "head_dim": 8, "logit_scale": 1.0}),
    "deepseek_v2": ("DeepseekV2", {**LATENT, **EXPERTS, "topk_method": "greedy"}),
    "deepseek_v3": ("DeepseekV3", {**LATENT, **EXPERTS}),
    "ernie4_5": ("Ernie4_5", {"head_dim": 8}),
    "gemma": ("Gemma", {"head_dim": 8}),
    "gemma3": ("Gemma3", {**WINDOW, "head_dim": 8, "query_pre_attn_scalar": 8}),
    "glm4": ("Glm4", {"head_dim": 8}),
    "granite": ("Granite", {}),
    "llama": ("Llama", {}),
    "ministral": ("Ministral", {**WINDOW, "head_dim": 8}),
    "mistral": ("Mistral", {"head_dim": 8}),
    "mistral with a window": ("Mistral", {**WINDOW, "head_dim": 8}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "olmo2": ("Olmo2", {}),
    "phi3": ("Phi3", {}),
    "phi3 with a window": ("Phi3", WINDOW),
    "qwen2 with a window": ("Qwen2", {**WINDOW, "use_sliding_window": True, "max_window_layers": 1}),
    "olmo_hybrid": ("OlmoHybrid", HYBRID),
    "qwen3": ("Qwen3", {"head_dim": 8}),
    "qwen3_5": ("Qwen3_5", HYBRID),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        {**HYBRID, **EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 16},
    ),
    "qwen3_next": (
        "Qwen3Next",
        {**HYBRID, **EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 16},
    ),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 8, "num_experts": 4}),
    "smollm3": ("SmolLM3", {}),
}
ROWS = [
    ([5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17]),
    ([5, 6, 7, 8, 9, 10, 11], [18]),
    ([5, 6, 7, 8, 9, 10, 11], [19, 20, 21]),
    ([22, 23], [24, 25, 26, 27, 28, 29]),
    ([22, 23], [30, 31]),
]


def off(name):
    """Why a decoder takes no packs with the installed transformers; empty if it does."""
    stem, _ = DECODERS[name]
    if not hasattr(transformers, f"{stem}ForCausalLM"):
        return f"transformers {INSTALLED} has no {stem}"
    if name == "olmo_hybrid" and INSTALLED.release < (5, 15):
        return f"transformers {INSTALLED} convolves queries, keys and values of OLMo-Hybrid apart"
    return ""


def build(name, extra=None):
    stem, options = DECODERS[name]
    if why := off(name):
        pytest.skip(why)
    config_class = getattr(transformers, f"{stem}TextConfig", None) or getattr(transformers, f"{stem}Config")
    config = config_class(**{**SIZES, **options, **(extra or {})})
    torch.manual_seed(0)
    model = getattr(transformers, f"{stem}ForCausalLM")._from_config(config, attn_implementation="sdpa")
    interface.install("sdpa")
    recurrent.install(model)
    return model.float().train()


def packed(model, rows, side, backend, worth=WORTH):
    inputs = collate(rows, side)
    mask = inputs.pop("completion_mask")
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    form = interface.pack_form(model.config, backend)
    pack = build_pack(rows, inputs["input_ids"], mask, form, worth=worth)
    ours = packed_scores(model, model.lm_head, pack_inputs(inputs, pack, {}), pack, vocab_size=VOCAB)[..., 0]
    return inputs, mask, ours


def check(model, side="right", backend="sdpa"):
    with in_float64():
        inputs, mask, ours = packed(model.double(), ROWS, side, backend)
        stock = stock_logps(model, inputs, mask)
        torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
        expected, got = gradients(model, stock), gradients(model, ours)
    assert expected.keys() == got.keys()
    assert relative(got, expected) < DOUBLE


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", sorted(DECODERS))
def test_a_pack_has_the_log_probs_and_gradients_of_its_rows(name, side):
    model = build(name)
    assert interface.unsupported(model.config) == recurrent.unsupported(model.get_decoder()) == ""
    check(model, side)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["gemma3", "llama", "mistral with a window", "qwen3_5", "qwen3_moe"])
def test_the_layout_finds_its_way_into_a_recomputation(name, reentrant):
    model = build(name)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    check(model, backend="dense")


def test_without_its_window_a_decoder_would_differ(monkeypatch):
    model = build("mistral with a window")
    monkeypatch.setattr(interface, "window_of", lambda module, options: None)
    inputs, mask, ours = packed(model, ROWS, "right", "sdpa")
    assert (ours - stock_logps(model, inputs, mask)).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("name", "extra", "reason"),
    [
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise 0.1, noise"),
        ("llama", {"attention_dropout": 0.1}, "attention_dropout 0.1"),
        (
            "qwen3",
            {"layer_types": ["full_attention", "chunked_attention", "full_attention"]},
            "chunked_attention",
        ),
    ],
)
def test_what_packs_cannot_do_is_named(name, extra, reason):
    assert reason in interface.unsupported(build(name, extra).config)
