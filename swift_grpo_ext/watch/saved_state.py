"""What a checkpoint keeps of the monitors, one file a rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift.utils import get_logger

from swift_grpo_ext.folders import write_whole

logger = get_logger()

STATE = "swift_grpo_ext_watch_rank_{rank}.json"


def write_state(checkpoint: Path, rank: int, state: Mapping[str, object]) -> None:
    """Write the state of a rank; a disk that is full costs a warning, not the run."""
    try:
        write_whole(checkpoint / STATE.format(rank=rank), json.dumps(state).encode())
    except OSError as error:
        logger.warning(f"swift-grpo-ext [watch] a run resumed here begins its monitors anew: {error}")


def read_state(checkpoint: Path, rank: int) -> dict[str, Any] | None:
    """The state of a rank; None if the checkpoint has none that can be read."""
    path = checkpoint / STATE.format(rank=rank)
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        logger.warning(f"swift-grpo-ext [watch] {path} is damaged: the monitors begin anew")
        return None
    return state
