"""Qwen2.5-VL: the host's template with placeholder ids read from the model's config."""

from __future__ import annotations

import dataclasses

from swift.template import TEMPLATE_MAPPING, register_template
from swift.template.templates.qwen import Qwen2_5VLTemplate as HostTemplate

TEMPLATE_TYPES = ("qwen2_5_vl", "mimo_vl")


class Qwen2_5VLTemplate(HostTemplate):
    """Template of `Qwen2_5_VLForConditionalGeneration`.

    The host hard-codes the ids of the published vocabulary (151655, 151656). Here they come from the
    config, so a checkpoint with another vocabulary (a trimmed, extended or tiny one) trains as well.
    """

    def init_processor(self, processor: object) -> None:
        """Bind the template to a processor and take the placeholder ids from its model's config.

        Args:
            processor: The host's processor, carrying ``model_info.config``; None leaves the template unbound.
        """
        super().init_processor(processor)
        if processor is not None:
            config = self.model_info.config
            self.image_token_id = config.image_token_id
            self.video_token_id = config.video_token_id


def register() -> list[str]:
    """Put the template in the place of the host's, under every template type that uses it."""
    for name in TEMPLATE_TYPES:
        register_template(
            dataclasses.replace(TEMPLATE_MAPPING[name], template_cls=Qwen2_5VLTemplate), exist_ok=True
        )
    return list(TEMPLATE_TYPES)
