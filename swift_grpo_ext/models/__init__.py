"""Model families: one file each, with model meta, template, architecture and vision facts."""

from __future__ import annotations


def register() -> list[str]:
    """Register templates and models, replacing the host's of the same name."""
    from swift_grpo_ext.models import config_ids, ovis2, qwen2_5_vl

    return [*qwen2_5_vl.register(), *ovis2.register(), *config_ids.register()]
