"""The planner's bytes against those that a training step of real small models takes on the CPU."""

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration
from trl.trainer.utils import selective_log_softmax

from swift_grpo_ext.doctor.plan import memory
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.hugging_face.release import FIFTH
from swift_grpo_ext.testing import tiny_config
from tests.doctor.live_bytes import LiveBytes

TARGETS = r".*language_model.*(q|k|v|o|gate|up|down)_proj"
TINY = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
}
MINI = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8192,
}
ONE = Machine(gpus_per_node=1)


def model_of(sizes, layers, *, lora):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = tiny_config(
        "qwen2_5_vl", num_hidden_layers=layers, tie_word_embeddings=False, eos_token_id=1, **sizes
    )
    model = Qwen2_5_VLForConditionalGeneration._from_config(
        config, dtype=torch.bfloat16, attn_implementation="sdpa"
    ).train()
    model.model.visual.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    if lora:
        model.enable_input_require_grads()
        adapter = LoraConfig(r=8, lora_dropout=0.0, target_modules=TARGETS)
        model = get_peft_model(model, adapter, autocast_adapter_dtype=False)
    return model, shape_of(config.to_dict())


def measured(model, tokens, completion):
    """Bytes of weights, gradients and moments after a step, and most bytes during the next one."""
    weights = {id(p): p.numel() * p.element_size() for p in model.parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=False)
    ids = torch.randint(0, 1000, (1, tokens))
    positions = torch.arange(tokens).expand(3, 1, -1).contiguous()
    with LiveBytes() as live:
        for _ in range(2):
            logits = model(
                input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=completion + 1
            ).logits
            logits = logits[:, -(completion + 1) : -1]
            logits.div_(0.9)
            loss = -selective_log_softmax(logits, ids[:, -completion:]).mean()
            loss.backward()
            del logits, loss
            optimizer.step()
        states = live.live
    return sum(weights.values()) + states, sum(weights.values()) + live.peak


@pytest.mark.skipif(
    not FIFTH, reason="on a CPU transformers 4 computes attention in whole matrices, on a GPU it does not"
)
@pytest.mark.parametrize("lora", [pytest.param(True, marks=pytest.mark.slow), False], ids=["lora", "full"])
@pytest.mark.parametrize(
    ("sizes", "layers", "tokens"),
    [(TINY, 4, 512), pytest.param(MINI, 6, 384, marks=pytest.mark.slow)],
    ids=["tiny", "mini"],
)
def test_the_planned_peak_is_that_of_a_real_step(sizes, layers, tokens, lora):
    model, shape = model_of(sizes, layers, lora=lora)
    completion = tokens // 2
    work = Work(full=not lora, images=0, text_tokens=tokens - completion, completion_tokens=completion)
    setting = Setting(stage=0, rollout="transformers")
    needed = memory.memory_range(shape, work, setting, ONE)
    states, peak = measured(model, tokens, completion)
    held = ("weights", "LoRA", "optimizer states", "gradients")
    planned_states = sum(term.low for term in needed.phases["update"] if term.name in held)
    # No CUDA, no allocator and no reference model here.
    absent = ("CUDA context", "reference model", "allocator's reserve")
    low, high = (
        sum(getattr(term, end) for term in needed.phases["update"] if term.name not in absent)
        for end in ("low", "high")
    )
    print(f"\nstates {states / 1e6:.2f} MB, planned {planned_states / 1e6:.2f}; peak {peak / 1e6:.2f} MB, ")
    print(f"planned {low / 1e6:.2f} to {high / 1e6:.2f}")
    assert planned_states == pytest.approx(states, rel=0.02)
    assert 0.8 * peak <= low <= 1.2 * peak
    assert high >= 0.95 * peak
