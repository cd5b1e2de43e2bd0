"""A plugin for the tests: the run's vLLM has the fault that ``ENGINE_FAULT`` names."""

import os
from copy import deepcopy
from dataclasses import replace

from PIL import Image
from swift.infer_engine import GRPOVllmEngine
from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

FAULT = os.environ.get("ENGINE_FAULT", "")
infer = GRPOVllmEngine.infer


def drawn_with(**settings):
    def drawn(self, infer_requests, request_config=None, **kwargs):
        return infer(self, infer_requests, replace(request_config, **settings), **kwargs)

    return drawn


def in_verse(self, infer_requests, request_config=None, **kwargs):
    infer_requests = deepcopy(infer_requests)
    for request in infer_requests:
        messages = (
            request["messages"] if isinstance(request, dict) else request.messages
        )  # a server's are dicts
        kept = [turn for turn in messages if turn["role"] != "system"]
        messages[:] = [{"role": "system", "content": "Answer in verse."}, *kept]
    return infer(self, infer_requests, request_config, **kwargs)


def resized(self, infer_requests, request_config=None, **kwargs):
    infer_requests = deepcopy(infer_requests)
    for request in infer_requests:
        request.images = [Image.open(path).resize((140, 140)) for path in request.images]
    return infer(self, infer_requests, request_config, **kwargs)


if FAULT == "temperature":
    GRPOVllmEngine.infer = drawn_with(temperature=0.3)
elif FAULT == "top_p":
    GRPOVllmEngine.infer = drawn_with(top_p=0.5)
elif FAULT == "system":
    GRPOVllmEngine.infer = in_verse
elif FAULT == "pixels":
    GRPOVllmEngine.infer = resized
elif FAULT == "never synced":
    RolloutTrainerMixin._move_model_to_vllm = lambda self, skip_async_check=False: None
elif FAULT == "adapters never sent":
    RolloutTrainerMixin._move_adapter_to_vllm = lambda self: None
