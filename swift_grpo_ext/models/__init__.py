"""Model families: descriptions in `families`, templates of our own beside it."""

from importlib import import_module


def register() -> list[str]:
    """Register templates and models, replacing the host's of the same name."""
    from swift_grpo_ext.models import config_ids
    from swift_grpo_ext.models.families import ENTRIES

    own = [name for entry in ENTRIES if entry.template for name in import_module(entry.template).register()]
    return [*own, *config_ids.register()]
