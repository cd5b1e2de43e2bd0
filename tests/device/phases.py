"""What a run on the made-up device does at a time: its phases, one of which may run full."""

import contextlib
import os
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch

from tests.device import made_up


class Phases:
    """The phases of a run, under whose names waits and bytes are counted.

    In one of them nothing can be allocated, so many times, on one rank or on all.
    """

    def __init__(self, full: str = "", times: int = 0, rank: str = "") -> None:
        self.full = full if rank in ("", os.environ.get("RANK", "")) else ""
        self.left = times

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Open while the run is in a phase."""
        ledger = made_up.ledger
        before = ledger.limit
        if phase == self.full and self.left > 0:
            ledger.limit = ledger.allocated
        try:
            with made_up.phase(phase):
                yield
        except torch.OutOfMemoryError:
            self.left -= phase == self.full
            raise
        finally:
            ledger.limit = before

    def watch(self, trainer: Any) -> None:
        """See the phases of a trainer that is built."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        for name, part in model.named_modules():
            if name.endswith(("visual", "vision_tower")):
                self._wrap(
                    part, "forward", lambda: "tower" if made_up.ledger.phase != "rollout" else "rollout"
                )
        self._wrap(trainer, "_generate_completions", lambda: "rollout")
        self._wrap(trainer, "_prepare_batch_inputs", lambda: "inputs")
        self._wrap(trainer, "compute_loss", lambda: "loss")
        passes = "_get_per_token_logps_and_entropies"
        self._wrap(trainer, passes, lambda: "policy" if torch.is_grad_enabled() else "reference")
        self._wrap(trainer.accelerator, "backward", lambda: "backward")
        make = trainer.create_optimizer

        def create(*args: Any, **kwargs: Any) -> Any:
            optimizer = make(*args, **kwargs)
            self._wrap(optimizer, "step", lambda: "optimizer")
            return optimizer

        trainer.create_optimizer = create

    def _wrap(self, owner: Any, name: str, phase: Callable[[], str]) -> None:
        inner = getattr(owner, name)

        def within(_: Any, *args: Any, **kwargs: Any) -> Any:
            with self.during(phase()):
                return inner(*args, **kwargs)

        setattr(owner, name, MethodType(within, owner))
