"""The names of rewards, without an import of ms-swift, which takes seconds."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards.catalogue import NAMES, PREFIX, meant_by, split_form


def require_reward(name: str, plugins: Sequence[str]) -> None:
    """Look a reward up without importing ms-swift; an unknown name may be that of a plugin file.

    Raises:
        RewardError: No reward has this name; the nearest is given.
    """
    base, _ = split_form(name)
    known = [*NAMES, *_names_of_ms_swift()]
    if base not in known and (base.startswith(PREFIX) or not plugins):
        fix = f"{meant_by(base, known)} (a reward of your own needs --plugin FILE)"
        raise RewardError(f"no reward is called {base!r}", fix=fix)


def _names_of_ms_swift() -> list[str]:
    """The keys of ms-swift's table of rewards, read from its source."""
    host = find_spec("swift")
    file = Path(host.origin).parent / "rewards/orm.py" if host and host.origin else None
    source = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    return re.findall(r"^ {4}'(\w+)':", source.partition("\norms = {")[2], re.MULTILINE)
