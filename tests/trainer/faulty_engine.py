"""A plugin for the tests: the transformers engine of a run has the fault that ``ENGINE_FAULT`` names.

``FAULT@2`` is one of the second turn alone. Each stands for a fault of a rollout server, whose model, template or settings
are not the trainer's. Like vLLM, and unlike transformers, it returns the log-probs of what it draws from.
"""

import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from swift.infer_engine import TransformersEngine
from transformers import GenerationMixin, LogitsProcessorList

from swift_grpo_ext.models.families import forbidden_token_ids
from swift_grpo_ext.swap import swapped
from tests.trainer.faulty_requests import faulty_request, turn_of, with_mixed_ids

infer = TransformersEngine.infer
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


@contextmanager
def norms_of_images(engine):
    """Videos are normalised as images (vLLM 0.32)."""
    processor = engine.template.processor
    images, videos = processor.image_processor, processor.video_processor
    with swapped(videos, "image_mean", images.image_mean), swapped(videos, "image_std", images.image_std):
        yield


CONTEXTS = {
    "norms of images": norms_of_images,
    "rows of M-RoPE": without_rows,
    "old tower": old_tower,
    "thinking": thinking,
    "never synced": never_synced,
    "other checkpoint": other_checkpoint,
    "without adapters": without_adapters,
}


DRAWN = {"temperature": {"temperature": 0.3}, "top_p": {"top_p": 0.5}}


class Telling:
    """Writes down the log-probs of what one ``generate`` draws.

    Placeholders that the guard forbids count as if they were allowed: a checkpoint with few words has much of them.
    """

    def __init__(self, engine, temperature):
        self.temperature, self.scores, self.drawn = temperature, None, []
        self.forbidden = list(forbidden_token_ids(engine.template.config, engine.template.tokenizer))

    def around(self, make):
        def processors(*args, **kwargs):
            return LogitsProcessorList([self.before, *make(*args, **kwargs), self.after])

        return processors

    def before(self, input_ids, scores):
        self.raw = scores.float() / self.temperature
        return scores

    def after(self, input_ids, scores):
        if self.scores is not None:
            newest = input_ids[:, -1:]
            self.drawn.append((newest[:, 0].tolist(), self.scores.gather(-1, newest)[:, 0].tolist()))
        allowed = scores.float().clone()
        allowed[:, self.forbidden] = self.raw[:, self.forbidden]
        self.scores = allowed.log_softmax(-1)
        return scores

    def of_row(self, row, tokens, pad):
        """What an engine would tell of a row's tokens."""
        logps = [logps[row] for drawn, logps in self.drawn if drawn[row] != pad]
        return [*logps, float(self.scores[row, tokens[-1]])][: len(tokens)] if tokens else []


@contextmanager
def telling(engine, temperature):
    told = Telling(engine, temperature)
    make = GenerationMixin._get_logits_processor
    with swapped(
        GenerationMixin,
        "_get_logits_processor",
        lambda model, *args, **kwargs: told.around(make)(model, *args, **kwargs),
    ):
        yield told


def faulty(self, infer_requests, request_config=None, **kwargs):
    if "ENGINE_FAULT" not in os.environ:  # a test of another file, in the same process
        return infer(self, infer_requests, request_config, **kwargs)
    fault = os.environ["ENGINE_FAULT"]
    silent = "silent" in fault
    fault, _, turn = fault.removesuffix(", silent").partition("@")
    if turn and infer_requests and turn_of(infer_requests[0]) != int(turn):
        fault = ""
    if fault.startswith("rank "):
        fault = "temperature" if fault.endswith(os.environ["RANK"]) else ""
    if not infer_requests or request_config is None or request_config.temperature == 0:
        return infer(self, infer_requests, request_config, **kwargs)
    if request_config.top_k is None or request_config.top_k <= 0:
        # transformers would take its default
        request_config = replace(request_config, top_k=self.model.config.get_text_config().vocab_size)
    request_config = replace(request_config, **DRAWN.get(fault, {}))
    infer_requests = [faulty_request(request, fault) for request in infer_requests]
    with (
        CONTEXTS.get(fault, lambda engine: nullcontext())(self),
        telling(self, request_config.temperature) as told,
    ):
        responses = infer(self, infer_requests, request_config, **kwargs)
    for row, response in enumerate(responses):
        if fault == "mute":
            response.prompt_token_ids = None
        if fault == "ids mixed":
            with_mixed_ids(response, self.model.config.image_token_id)
        choice = getattr(response, "response", response).choices[0]
        logps = told.of_row(row, choice.token_ids, self.tokenizer.pad_token_id)
        if not silent and len(logps) == len(choice.token_ids):
            choice.logprobs = {"content": [{"logprob": logp} for logp in logps]}
    return responses


TransformersEngine.infer = faulty
