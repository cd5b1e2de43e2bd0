"""swift-grpo-ext: multimodal GRPO in ms-swift that is right, fast, and says so when it is not.

Importing the package registers nothing and loads neither torch nor the host. `register` is the entry:
the files in ``plugins/`` call it when the host imports them through ``--external_plugins``.
"""

from collections.abc import Iterable

from swift_grpo_ext.version import __version__

__all__ = ["__version__", "register"]


def register(parts: Iterable[str] | None = None) -> dict[str, list[str]]:
    """Hook parts of the package into ms-swift; see `swift_grpo_ext.registration.register`."""
    from swift_grpo_ext import registration  # the settings' packages are not needed for `group` alone

    return registration.register(parts)
