"""swift-grpo-ext: multimodal GRPO in ms-swift that is right, fast, and says so when it is not.

Importing the package registers nothing and loads neither torch nor ms-swift. `register` is the entry: the
plugin files call it when ms-swift imports them through ``--external_plugins``. The names below are public;
everything else is internal and may change.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.version import __version__

if TYPE_CHECKING:
    from swift_grpo_ext import testing as testing
    from swift_grpo_ext.rewards.catalogue import get_reward as get_reward
    from swift_grpo_ext.rewards.contract import Outcome as Outcome
    from swift_grpo_ext.rewards.contract import Reward as Reward
    from swift_grpo_ext.rewards.contract import Score as Score
    from swift_grpo_ext.rewards.contract import Unscorable as Unscorable
    from swift_grpo_ext.rewards.forms import system_text as system_text

__all__ = [
    "Outcome",
    "Reward",
    "Score",
    "Unscorable",
    "__version__",
    "get_reward",
    "register",
    "system_text",
    "testing",
]

_HOMES = {
    **dict.fromkeys(("Outcome", "Reward", "Score", "Unscorable"), "rewards.contract"),
    "get_reward": "rewards.catalogue",
    "system_text": "rewards.forms",
}


def register(parts: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Hook parts of the package into ms-swift and print one line of what was done.

    Args:
        parts: Some of compat, templates, trainer, rewards, presets and callbacks; all of them when None.

    Returns:
        For each part that is on in this process, the names that it registered.

    Raises:
        UnknownPartError: A part, or a name in ``SWIFT_GRPO_EXT_DISABLE``, does not exist.
        SettingsError: A ``SWIFT_GRPO_EXT_*`` variable is unknown or out of range.
        EnvironmentMismatchError: Some parts do not fit the installed packages; all others are registered.
    """
    from swift_grpo_ext import registration  # the settings' packages are not needed for `group` alone

    return registration.register(parts)


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for.

    Raises:
        AttributeError: The package has no such name.
        ImportError: It had.
    """
    if name == "limited":
        raise ImportError(
            "swift-grpo-ext: limited is gone -> register the class itself, with time_limit = 5 in its body"
        )
    if name == "testing":
        return import_module("swift_grpo_ext.testing")
    if name not in _HOMES:
        raise AttributeError(f"module 'swift_grpo_ext' has no attribute {name!r}")
    return getattr(import_module(f"swift_grpo_ext.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
