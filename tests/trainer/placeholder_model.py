"""A model that says placeholders and indicators whenever it may, and ends early now and then."""

import math

from transformers import GenerationMixin

from swift_grpo_ext.models.derived import speaking
from swift_grpo_ext.models.families import family_of

generate = GenerationMixin.generate
STOPS = 1 / 8  # of all tokens after which a completion might go on


def sample_placeholders(self, *args, **kwargs):
    config, family = kwargs["generation_config"], family_of(self.config)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    tokens = min(500, speaking(self.config).get_text_config().vocab_size)  # it samples among the likeliest
    bias = dict.fromkeys(((one,) for one in ends), math.log(STOPS * tokens / len(ends)))
    if family:
        bias |= {(one,): 100.0 for one in family.forbidden_token_ids}
        bias |= {(one,): 200.0 for one in family.read_token_ids}  # indicators alone are text
    config.sequence_bias = bias
    return generate(self, *args, **kwargs)


def unguarded(self, *args, **kwargs):
    """The same, and nothing is forbidden."""
    kwargs["generation_config"].suppress_tokens = None
    return sample_placeholders(self, *args, **kwargs)
