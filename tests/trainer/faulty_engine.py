"""A plugin for the tests: the transformers engine of a run has the fault that ``ENGINE_FAULT`` names.

``FAULT@2`` is one of the second turn alone. Each stands for a fault of a rollout server, whose model, template or settings are not the trainer's.
"""

import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from swift.infer_engine import TransformersEngine

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine.recorder import Recorder
from swift_grpo_ext.trainer.engine.vision import videos_as_images
from tests.trainer.faulty_requests import faulty_request, turn_of, with_mixed_ids

infer = TransformersEngine.infer
of_row = Recorder.of_row
first_weights = WeakKeyDictionary()  # of each run's engine


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


def first_of(engine):
    if engine not in first_weights:
        first_weights[engine] = {n: p.detach().clone() for n, p in engine.model.named_parameters()}
    return first_weights[engine]


def never_synced(engine):
    """Always with the weights of the first rollout."""
    first = first_of(engine)
    return weights(engine.model, lambda name, parameter: first[name])


def other_checkpoint(engine):
    torch.manual_seed(0)
    return weights(engine.model, lambda name, parameter: parameter + 0.2 * torch.randn_like(parameter))


def without_adapters(engine):
    return engine.model.disable_adapter()


def thinking(engine):
    return swapped(engine.template, "response_prefix", "<think>\n")


@contextmanager
def without_rows(engine):
    """Height and width of M-RoPE are those of time: the fault of a fused kernel (slime#2336)."""

    def keep_time(module, args, kwargs):
        states, positions = args
        return (states, positions[:1].repeat(3, 1, 1)), kwargs

    rotary = next(m for n, m in engine.model.named_modules() if n.endswith("language_model.rotary_emb"))
    hook = rotary.register_forward_pre_hook(keep_time, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def old_tower(engine):
    """The features of images are those of the first rollout."""
    first = first_of(engine)
    return weights(engine.model, lambda name, parameter: first[name] if ".visual." in name else parameter)


def norms_of_images(engine):
    """Videos are normalised as images (vLLM 0.32)."""
    return videos_as_images(engine.template.processor)


CONTEXTS = {
    "norms of images": norms_of_images,
    "rows of M-RoPE": without_rows,
    "old tower": old_tower,
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
    fault, _, turn = fault.partition("@")
    if turn and infer_requests and turn_of(infer_requests[0]) != int(turn):
        fault = ""
    if fault.startswith("rank "):
        fault = "temperature" if fault.endswith(os.environ["RANK"]) else ""
    if not fault:  # in this process from the first run that loaded it on
        return infer(self, infer_requests, request_config, **kwargs)
    request_config = replace(request_config, **DRAWN.get(fault, {}))
    infer_requests = [faulty_request(request, fault) for request in infer_requests]
    with CONTEXTS.get(fault, lambda engine: nullcontext())(self):
        responses = infer(self, infer_requests, request_config, **kwargs)
    for response in responses:
        if fault == "mute":
            response.prompt_token_ids = None
        if fault == "ids mixed":
            with_mixed_ids(response, self.model.config.image_token_id)
    return responses


TransformersEngine.infer = faulty
Recorder.of_row = lambda self, *where: (
    [] if "silent" in os.environ.get("ENGINE_FAULT", "") else of_row(self, *where)
)
