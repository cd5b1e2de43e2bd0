"""The planner's activation bytes against those of the real modules, run on fake tensors that hold no memory."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Qwen2_5_VLForConditionalGeneration
from trl.trainer.utils import selective_log_softmax

from swift_grpo_ext.doctor.plan import arithmetic
from swift_grpo_ext.doctor.plan.setting import Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of
from swift_grpo_ext.hugging_face.release import FIFTH
from swift_grpo_ext.testing import tiny_config
from tests.doctor.live_bytes import LiveBytes

TARGETS = r".*language_model.*(q|k|v|o|gate|up|down)_proj"
SIZES = {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4}


def model_without_memory(layers, *, lora):
    from peft import LoraConfig, get_peft_model

    config = tiny_config(
        "qwen2_5_vl",
        vision={"depth": 1},
        num_hidden_layers=layers,
        vocab_size=152064,
        tie_word_embeddings=False,
        **SIZES,
    )
    with torch.device("meta"):
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


def put_on_fake_tensors(model):
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                fake = torch.empty(parameter.shape, dtype=parameter.dtype)
                module._parameters[name] = torch.nn.Parameter(fake, requires_grad=parameter.requires_grad)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    for parameter in model.parameters():
        if parameter.requires_grad:  # gradients are another term of the plan
            parameter.register_post_accumulate_grad_hook(lambda held: setattr(held, "grad", None))


def measured_peak(model, tokens, completion):
    with FakeTensorMode(allow_non_fake_inputs=True):
        put_on_fake_tensors(model)
        ids = torch.zeros(1, tokens, dtype=torch.long)
        positions = torch.zeros(3, 1, tokens, dtype=torch.long)
        with LiveBytes() as bytes_:
            log_probs(model, ids, positions, completion).sum().backward()
    return bytes_.peak


def log_probs(model, ids, positions, completion):
    """As the host's `_get_logps_via_local_forward`."""
    logits = model(
        input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=completion + 1
    ).logits
    logits = logits[:, -(completion + 1) : -1]
    logits.div_(0.9)
    return selective_log_softmax(logits, ids[:, -completion:])


@pytest.mark.skipif(
    not FIFTH, reason="on a CPU transformers 4 computes attention in whole matrices, on a GPU it does not"
)
@pytest.mark.parametrize(
    ("lora", "tokens", "completion"),
    [(True, 4096, 256), (True, 2048, 1536), (False, 8192, 1024)],
    ids=["layer", "logits", "full"],
)
def test_predicted_activations_are_those_of_the_real_modules(lora, tokens, completion):
    model, shape = model_without_memory(3, lora=lora)
    work = Work(full=not lora, images=0, text_tokens=tokens - completion, completion_tokens=completion)
    predicted, _ = arithmetic.update_peak(shape, work, Setting())
    assert predicted == pytest.approx(measured_peak(model, tokens, completion), rel=0.15)
