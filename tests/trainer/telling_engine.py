"""A plugin for the tests: transformers' engine samples among all tokens and tells log-probs, as vLLM does."""

from dataclasses import replace

from swift.infer_engine import TransformersEngine
from swift.rlhf_trainers import rollout_mixin

infer = TransformersEngine.infer


def telling(self, infer_requests, request_config=None, **kwargs):
    everything = len(self.tokenizer)
    return infer(self, infer_requests, replace(request_config, logprobs=True, top_k=everything), **kwargs)


TransformersEngine.infer = telling
rollout_mixin.check_vllm_version_ge = lambda *args: True  # else importance sampling is off
