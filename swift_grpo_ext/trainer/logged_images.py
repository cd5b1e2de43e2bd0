"""Which images a logged completion was about, where on them it points, and whether it was an evaluation's."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.overlay_boxes import located, reward_with_frame
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.picture_folder import PictureFolder


class LoggedImages:
    """Mixin of the host's GRPO trainer: completions.jsonl gets columns ``images``, ``regions`` and ``split``.

    The host keeps no trace of the images since swift#6269, so nobody can tell what a completion was about,
    and the tables of wandb and swanlab have no pictures any more.
    """

    _pictures: PictureFolder | None = None

    def _log_rollout(self: Any, samples: list[Any]) -> None:
        super()._log_rollout(samples)  # type: ignore[misc]
        if not self.log_completions:  # of the configuration, so the same on every rank
            return
        places = self._places_of()
        if self._pictures is None:
            self._pictures = PictureFolder(Path(self.args.output_dir) / "watch/images")
        paths = self._pictures.path_of
        local = [(list(map(paths, sample.images)), places(sample)) for sample in samples]
        gathered = self._gather_and_flatten(local, flatten_level=0)
        for number, name in enumerate(("images", "regions")):
            column = self._logs.setdefault(name, deque(maxlen=self.args.generation_batch_size))
            column.extend(row[number] for row in gathered)

    def _places_of(self: Any) -> Callable[[Any], Any]:
        """Gives the boxes and points of a sample, read as the run's reward reads them."""
        reward = reward_with_frame(self.reward_func_names)
        if reward is None:
            return lambda sample: None
        parameters = load_table(current_settings().reward_table).rule(reward.name).parameters
        return lambda sample: located(
            sample.messages[-1]["content"],
            {"objects": sample.objects or None, **sample.extra},
            reward,
            parameters,
        )

    def log(self: Any, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as the host does, with a picture in each row of its tables, to which evaluation adds, too."""
        if self.log_completions:
            split = "train" if self.model.training else "eval"
            self._logs["split"] = [split] * len(self._logs["prompt"])
        pictures = self._pictures_of_rows()
        if pictures and "wandb" in self.args.report_to:
            self._logs["image"] = pictures  # where the host still looks for them
        super().log(logs, start_time)  # type: ignore[misc]
        self._logs.pop("image", None)
        if pictures and "swanlab" in self.args.report_to:
            _to_swanlab(pictures, list(self._logs["completion"]))

    def _pictures_of_rows(self: Any) -> list[str | None]:
        """The first image of each row of the host's table, as far as it is a file."""
        trackers = self.log_completions and self.accelerator.is_main_process and self.args.report_to
        if not trackers:
            return []
        # The host shows as many rows as have an entropy, where it logs entropies.
        shown = len(self._logs["entropy"]) if "entropy" in self._logs else None
        rows = list(self._logs.get("images", ()))[:shown]
        return [next((path for path in paths if path and os.path.isfile(path)), None) for paths in rows]


def _to_swanlab(pictures: Sequence[str | None], completions: Sequence[str]) -> None:
    """Each distinct picture once, with its first completion: tables of swanlab hold none."""
    import swanlab

    if swanlab.get_run() is None:
        return
    captions = {path: text for path, text in zip(pictures, completions, strict=False) if path}
    images = [swanlab.Image(path, caption=text[:200]) for path, text in captions.items()]
    if images:
        swanlab.log({"completions/images": images})
