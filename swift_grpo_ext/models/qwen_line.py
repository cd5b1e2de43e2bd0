"""ms-swift's templates of Qwen's other vision-language models, with placeholder ids from the config.

ms-swift writes the ids of the published vocabularies into Qwen2-VL, Qwen3-VL, Qwen3.5 and what follows them,
so a checkpoint with a trimmed, extended or tiny vocabulary finds no image tokens. Nothing else is changed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from swift.template import TEMPLATE_MAPPING, register_template
from swift.template.templates.qwen import Qwen2VLTemplate

from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.models.template import VisionTemplate


class ConfigIds:
    """Mixin of a template: the ids of images and videos are those of the checkpoint."""

    def init_processor(self: Any, processor: Any) -> None:
        """Bind the template to a processor, whose model's config has the ids."""
        super().init_processor(processor)  # type: ignore[misc]
        facts = family_of(self.config) if processor is not None else None
        if facts is not None:
            self.image_token_id = facts.image_token_id
            self.video_token_id = facts.video_token_id


def register() -> list[str]:
    """Give every template of the line the ids of its checkpoint; their names."""
    names = []
    for name, meta in list(TEMPLATE_MAPPING.items()):
        host = meta.template_cls
        if not issubclass(host, Qwen2VLTemplate) or issubclass(host, (VisionTemplate, ConfigIds)):
            continue
        own = type(host.__name__, (ConfigIds, host), {"__module__": host.__module__})
        register_template(dataclasses.replace(meta, template_cls=own), exist_ok=True)
        names.append(name)
    return names
