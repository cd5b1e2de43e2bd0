"""Which images a logged completion was about."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any


class LoggedImages:
    """Mixin of the host's GRPO trainer: completions.jsonl gets a column ``images``.

    The host keeps no trace of the images since swift#6269, so nobody can tell what a completion was about.
    """

    def _log_rollout(self: Any, samples: list[Any]) -> None:
        super()._log_rollout(samples)  # type: ignore[misc]
        if not self.log_completions:  # of the configuration, so the same on every rank
            return
        local = [image_paths(sample.images) for sample in samples]
        column = self._logs.setdefault("images", deque(maxlen=self.args.generation_batch_size))
        column.extend(self._gather_and_flatten(local, flatten_level=0))


def image_paths(images: Sequence[Any]) -> list[str | None]:
    """Path or address of each image of a row, as the dataset gives it; None for one that is only in memory.

    Args:
        images: The host's form of a row's images: ``{"path": ..., "bytes": ...}``, or a path.
    """
    paths = [image.get("path") if isinstance(image, dict) else image for image in images]
    return [path if isinstance(path, str) and not path.startswith("data:") else None for path in paths]
