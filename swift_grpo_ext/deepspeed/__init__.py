"""DeepSpeed presets that ``--deepspeed`` takes by name."""


def register() -> list[str]:
    """Teach the host's ``--deepspeed`` flag the names of our presets."""
    from swift_grpo_ext.deepspeed import presets

    presets.hook_into_host()
    return list(presets.available())
