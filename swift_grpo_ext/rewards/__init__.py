"""Reward functions: pure scoring functions, and one thin room that registers them as ms-swift ORMs."""


def register() -> list[str]:
    """Register every reward of the catalogue in the host's ``orms`` table."""
    from swift_grpo_ext.rewards.registration import register_orms

    return register_orms()
