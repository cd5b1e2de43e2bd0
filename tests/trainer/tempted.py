"""A model that says placeholders and indicators whenever it may."""

from transformers import GenerationMixin

from swift_grpo_ext.models.families import family_of

generate = GenerationMixin.generate


def tempted(self, *args, **kwargs):
    family = family_of(self.config)
    if family:
        kwargs["generation_config"].sequence_bias = {(one,): 100.0 for one in family.forbidden_token_ids}
    return generate(self, *args, **kwargs)
