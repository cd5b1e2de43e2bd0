"""A plugin for the tests: the transformers engine of a run has the fault that ``ENGINE_FAULT`` names.

Each stands for a fault of a rollout server, whose model, template or settings are not the trainer's.
"""

import os
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace

import torch
from PIL import Image
from swift.infer_engine import TransformersEngine

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine.recorder import Recorder

infer = TransformersEngine.infer
of_row = Recorder.of_row
first_weights = {}


@contextmanager
def weights(model, values):
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values(name, parameter))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(kept[name])


def never_synced(engine):
    """Always with the weights of the first rollout."""
    if not first_weights:
        first_weights.update({n: p.detach().clone() for n, p in engine.model.named_parameters()})
    return weights(engine.model, lambda name, parameter: first_weights[name])


def other_checkpoint(engine):
    torch.manual_seed(0)
    return weights(engine.model, lambda name, parameter: parameter + 0.2 * torch.randn_like(parameter))


def without_adapters(engine):
    return engine.model.disable_adapter()


def thinking(engine):
    return swapped(engine.template, "response_prefix", "<think>\n")


CONTEXTS = {
    "thinking": thinking,
    "never synced": never_synced,
    "other checkpoint": other_checkpoint,
    "without adapters": without_adapters,
}


DRAWN = {
    "temperature": {"temperature": 0.3},
    "top_p": {"top_p": 0.5},
    "unfiltered": {"top_p": 1.0, "top_k": 10**6},
}


def faulty(self, infer_requests, request_config=None, **kwargs):
    fault = os.environ.get("ENGINE_FAULT", "").removesuffix(", silent")
    if fault.startswith("rank "):
        fault = "temperature" if fault.endswith(os.environ["RANK"]) else ""
    request_config = replace(request_config, **DRAWN.get(fault, {}))
    if fault == "system":
        infer_requests = deepcopy(infer_requests)
        for request in infer_requests:
            kept = [turn for turn in request.messages if turn["role"] != "system"]
            request.messages = [{"role": "system", "content": "Answer in verse."}, *kept]
    if fault == "pixels":  # of a server with other limits
        infer_requests = deepcopy(infer_requests)
        for request in infer_requests:
            request.images = [Image.open(path).resize((140, 140)) for path in request.images]
    with CONTEXTS.get(fault, lambda engine: nullcontext())(self):
        return infer(self, infer_requests, request_config, **kwargs)


TransformersEngine.infer = faulty
Recorder.of_row = lambda self, *where: (
    [] if "silent" in os.environ.get("ENGINE_FAULT", "") else of_row(self, *where)
)
