"""A plugin for the tests: makes the model say placeholders whenever it may, and indicators where it may not."""

from swift.infer_engine import VllmEngine

from swift_grpo_ext.models.families import family_of

prepare = VllmEngine._prepare_generation_config


def prepare_and_tempt(self, request_config):
    params = prepare(self, request_config)
    facts = family_of(self.config)
    if facts:  # language models have none to say
        # A completion of indicators alone is text to most models, and scored.
        indicators = dict.fromkeys(facts.forbidden_token_ids, 50.0)
        params.logit_bias = indicators | dict.fromkeys(facts.read_token_ids, 100.0)
    return params


VllmEngine._prepare_generation_config = prepare_and_tempt
