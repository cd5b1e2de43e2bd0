"""A plugin for the tests: makes the model say placeholders and indicators whenever it may."""

from swift.infer_engine import VllmEngine

from swift_grpo_ext.models.families import family_of

prepare = VllmEngine._prepare_generation_config


def prepare_and_tempt(self, request_config):
    params = prepare(self, request_config)
    facts = family_of(self.config)
    if facts:  # language models have none to say
        params.logit_bias = dict.fromkeys(facts.forbidden_token_ids, 100.0)
    return params


VllmEngine._prepare_generation_config = prepare_and_tempt
