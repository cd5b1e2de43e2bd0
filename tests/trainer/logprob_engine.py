"""A plugin for the tests: transformers' engine samples among all tokens and tells log-probs, as vLLM does.

Only where ``ENGINE_TELLS`` is set: a plugin stays for the runs that follow in its process.
"""

import os
from dataclasses import replace

from swift.infer_engine import TransformersEngine
from swift.rlhf_trainers import rollout_mixin

infer, is_new = TransformersEngine.infer, rollout_mixin.check_vllm_version_ge


def telling(self, infer_requests, request_config=None, **kwargs):
    if "ENGINE_TELLS" in os.environ:
        everything = self.model.config.get_text_config().vocab_size
        request_config = replace(request_config, logprobs=True, top_k=everything)
    return infer(self, infer_requests, request_config, **kwargs)


TransformersEngine.infer = telling
# Without a vLLM that can tell, importance sampling is off.
rollout_mixin.check_vllm_version_ge = lambda version: "ENGINE_TELLS" in os.environ or is_new(version)
