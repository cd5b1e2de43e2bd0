"""A plugin for the tests: the run's vLLM has the fault that ``ENGINE_FAULT`` names."""

import os
from dataclasses import replace

from swift.infer_engine import GRPOVllmEngine
from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin
from vllm.model_executor.layers.rotary_embedding.mrope import MRotaryEmbedding

from tests.trainer.faulty_requests import PICTURES, faulty_request, with_mixed_ids

FAULT = os.environ.get("ENGINE_FAULT", "")
infer = GRPOVllmEngine.infer
rotate = MRotaryEmbedding.forward_native


def drawn_with(**settings):
    def drawn(self, infer_requests, request_config=None, **kwargs):
        return infer(self, infer_requests, replace(request_config, **settings), **kwargs)

    return drawn


def asked(self, infer_requests, request_config=None, **kwargs):
    infer_requests = [faulty_request(request, FAULT) for request in infer_requests]
    return infer(self, infer_requests, request_config, **kwargs)


def mixed(self, infer_requests, request_config=None, **kwargs):
    outputs = infer(self, infer_requests, request_config, **kwargs)
    for output in outputs:
        with_mixed_ids(output.response, self.config.image_token_id)
    return outputs


def with_time_alone(self, positions, *args, **kwargs):
    """Height and width of M-RoPE are those of time: the fault of a fused kernel (slime#2336)."""
    has_rows = positions.ndim == 2
    return rotate(self, positions[:1].expand_as(positions) if has_rows else positions, *args, **kwargs)


def keep_features(self):
    """As with a vLLM before 0.16: the features of images outlive a weight sync."""
    self.engine.engine.reset_prefix_cache()


if FAULT == "temperature":
    GRPOVllmEngine.infer = drawn_with(temperature=0.3)
elif FAULT == "top_p":
    GRPOVllmEngine.infer = drawn_with(top_p=0.5)
elif FAULT == "ids mixed":
    GRPOVllmEngine.infer = mixed
elif FAULT in ("system", "another question", "image lost", "image added", "video times", *PICTURES):
    GRPOVllmEngine.infer = asked
elif FAULT == "rows of M-RoPE":
    MRotaryEmbedding.forward_native = with_time_alone
elif FAULT == "old tower":
    RolloutTrainerMixin._reset_vllm_cache = keep_features
elif FAULT == "never synced":
    RolloutTrainerMixin._move_model_to_vllm = lambda self, skip_async_check=False: None
elif FAULT == "adapters never sent":
    RolloutTrainerMixin._move_adapter_to_vllm = lambda self: None
