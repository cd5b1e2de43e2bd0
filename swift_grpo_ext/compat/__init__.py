"""Defects of the host or its stack: one file each, with probe, fix, upstream link and removal rule."""


def register() -> list[str]:
    """Apply the patches that this environment needs and return their names."""
    from swift_grpo_ext.compat.registry import apply_all

    return apply_all()
