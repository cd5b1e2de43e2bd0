"""ms-swift's templates with placeholder ids from the config, where it has written the published ones.

Else a checkpoint with a trimmed, extended or tiny vocabulary finds no image tokens there.
"""

import dataclasses

from swift.template import TEMPLATE_MAPPING, Template, register_template
from transformers import ProcessorMixin

from swift_grpo_ext.models.derived import speaking, token_of
from swift_grpo_ext.models.template import VisionTemplate

# Attribute of a template, and the config field that has its value.
_FIELDS = {
    "image_token_id": "image_token",
    "video_token_id": "video_token",
    "boi_token_id": "boi_token",
    "image_token": "image_token",
}


class ConfigIds(Template):
    """Template mixin: replaces the ids that a class hard-codes by those of the checkpoint."""

    def init_processor(self, processor: ProcessorMixin | None) -> None:
        """Bind the template to a processor, whose model's config has the ids."""
        super().init_processor(processor)
        for name in _hard_coded(type(self)) if processor is not None else ():
            value = token_of(speaking(self.config), _FIELDS[name])
            if value is not None:
                setattr(self, name, value)


def _hard_coded(template: type[Template]) -> list[str]:
    return [name for name in _FIELDS if isinstance(getattr(template, name, None), int)]


def register() -> list[str]:
    """Give every template with hard-coded ids those of the checkpoint; returns the templates' names."""
    names = []
    for name, meta in list(TEMPLATE_MAPPING.items()):
        host = meta.template_cls
        if not _hard_coded(host) or issubclass(host, (VisionTemplate, ConfigIds)):
            continue
        own = type(host.__name__, (ConfigIds, host), {"__module__": host.__module__})
        register_template(dataclasses.replace(meta, template_cls=own), exist_ok=True)
        names.append(name)
    return names
