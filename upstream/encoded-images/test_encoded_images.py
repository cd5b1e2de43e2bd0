"""Qwen3-VL under DeepSpeed is sampled with its image.

That DeepSpeed is on is said to ms-swift's forward, which asks nothing else of it.
"""

import numpy as np
import pytest
import torch
from PIL import Image

from swift_grpo_ext import testing

QUESTION = "<image>Which digit is this?"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Answers about one image, by a model on which a picture has some weight, with and without DeepSpeed."""
    from swift.infer_engine import InferRequest, RequestConfig, TransformersEngine

    folder = testing.tiny_checkpoint(
        "qwen3_vl", tmp_path / "model", stock_vocabulary=True, initializer_range=0.2
    )
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (112, 112, 3), np.uint8))
    engine = TransformersEngine(
        str(folder),
        model_type="qwen3_vl",
        template_type="qwen3_vl",
        attn_impl="sdpa",
        torch_dtype=torch.float32,
    )

    def answer(deepspeed):
        monkeypatch.setattr("swift.model.models.qwen.is_deepspeed_enabled", lambda: deepspeed)
        request = InferRequest([{"role": "user", "content": QUESTION}], images=[picture])
        config = RequestConfig(max_tokens=8, temperature=0, logprobs=True)
        (response,) = engine.infer([request], config, use_tqdm=False)
        return [one["logprob"] for one in response.choices[0].logprobs["content"]]

    return answer


def test_the_image_is_seen(answers):
    without, under = answers(False), answers(True)
    assert under == pytest.approx(without, abs=1e-4), "another distribution"
