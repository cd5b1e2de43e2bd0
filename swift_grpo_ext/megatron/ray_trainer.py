"""Our Megatron trainer in a worker of Ray, where the driver samples, scores and collates."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from swift_grpo_ext.megatron.packs import Inputs
from swift_grpo_ext.megatron.trainer import MegatronGRPOTrainer


class WorkerTrainer(MegatronGRPOTrainer):
    """The trainer of one worker: no engine, no rewards, no data; micro-batches come with each call."""

    def __init__(self, args: Any, template: Any) -> None:
        self._updates = -1  # over the current generation batch; -1 before the first
        self._watched = ExitStack()  # open while the run is watched
        super().__init__(args, template, vllm_client=None)

    @staticmethod
    def _ending_together() -> AbstractContextManager[None]:
        return nullcontext()  # Ray ends all workers when one fails

    def _init_rollout_engine(self) -> None:
        self._init_rollout_params()
        self.disable_rollout_importance_sampling = False

    def _prepare_rewards(self) -> None:
        """No-op: rewards are computed by the driver."""

    def _load_teacher_model(self) -> None:
        """No-op: held by the worker."""

    def setup_model_training(self) -> None:
        """Model and optimizer are made ready."""
        super().setup_model_training()
        self.watching.begin()
        self._watched.enter_context(self.watching.watching())

    def finalize_training(self) -> None:
        """The run is over."""
        super().finalize_training()
        self._watched.close()

    def join_driver(self, needs_old: bool) -> int:
        """Completions of a micro-batch; ``needs_old``: the driver reads old log-probs."""
        why = "a teacher is compared with it; without teacher_prompt" if needs_old else ""
        self.passes.features = self.passes.features.without(skip_old_logps=why)
        self.passes.changed()
        return self.micro_batch_size

    @contextmanager
    def passing(self, inputs: Inputs, phase: str) -> Iterator[None]:
        """While this is open, log-probs of a micro-batch are computed for the driver.

        It asks for old ones first, of each update over a generation batch, and then for updates.
        """
        if phase == "old" and self._updates:
            self._updates = 0
            self.watching.engine_check.begin()
            self.passes.begin()
        with self.passes.preparing(inputs), self.passes.phase(phase):
            yield
        self.passes.forget()

    def _replace_data_iterator(self, data_iterator: Iterator[Inputs]) -> Iterator[Inputs]:
        """The micro-batches of an update, which all stages of a pipeline look at before they compute any."""
        batches = list(data_iterator)
        for batch in batches:
            self.passes.prepare(batch, first_update=not self._updates)
        return iter(batches)

    def train_step(self, train_data_iterator: Iterator[Inputs]) -> Any:
        """One update."""
        made = super().train_step(train_data_iterator)
        self._updates += 1
        self.passes.forget()
        return made
