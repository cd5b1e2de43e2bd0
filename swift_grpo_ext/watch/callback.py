"""The callback through which the host tells the monitors where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swift.callbacks import TrainerCallback

from swift_grpo_ext.watch.watch import Watch


class WatchCallback(TrainerCallback):
    """Owns the `Watch` of one rank. Our GRPO trainer adds it by itself."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.watch = Watch(trainer, args)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The model and the optimizer are prepared."""
        self.watch.begin(state.max_steps)

    def on_step_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
        """An optimizer step begins."""
        self.watch.begin_step()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint has been written."""
        self.watch.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
