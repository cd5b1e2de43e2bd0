"""The trainer that ms-swift builds for ``megatron rlhf --rlhf_type grpo``: the script of a run."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from swift.megatron.trainers import grpo_trainer
from swift.megatron.trainers.grpo_trainer import MegatronGRPOTrainer as HostGRPOTrainer
from torch import Tensor, nn

from swift_grpo_ext.folders import claimed
from swift_grpo_ext.megatron.group_cut import cut_by_groups, refuse_cut_groups
from swift_grpo_ext.megatron.held_out import MegatronHeldOut
from swift_grpo_ext.megatron.host import Logps, Ranks, log_from_last_rank
from swift_grpo_ext.megatron.packs import Inputs
from swift_grpo_ext.megatron.passes import MegatronPasses
from swift_grpo_ext.megatron.predictions import OutputLayers
from swift_grpo_ext.megatron.scoring import RankScoring
from swift_grpo_ext.megatron.watching import Watching
from swift_grpo_ext.models.families import frame_of
from swift_grpo_ext.ms_swift.overrides import require_overridden
from swift_grpo_ext.rewards.registration import tell_frame
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import ending_together
from swift_grpo_ext.trainer.gains import tell_gains
from swift_grpo_ext.trainer.loss_fixes import no_phantom_teacher, real_groups
from swift_grpo_ext.trainer.noise import turn_off_unasked_dropout
from swift_grpo_ext.trainer.reference import exchanged
from swift_grpo_ext.trainer.rollout import Rollout
from swift_grpo_ext.trainer.rows import Rows
from swift_grpo_ext.trainer.samples import Samples, VisionSample
from swift_grpo_ext.trainer.scoring import Scoring, names_of
from swift_grpo_ext.watch.guard import Guard


class MegatronGRPOTrainer(HostGRPOTrainer):
    """ms-swift's Megatron GRPO trainer with every method that we change, once; its parts own their state."""

    sample_cls = VisionSample
    dynamic_num_samples = False
    passes: MegatronPasses
    train_dataset: Any = None
    eval_dataset: Any = None

    # What the collaborators of both trainers call by the names of transformers' one.

    @cached_property
    def accelerator(self) -> Ranks:
        """This rank among all."""
        return Ranks(self.device, self.process_index, self.world_size, self.is_main_process)

    @property
    def model(self) -> nn.Module:
        """The policy, or this pipeline stage of it."""
        return self.unwrapped_models[0]

    @staticmethod
    def _ending_together() -> AbstractContextManager[None]:
        """Abort every rank when one raises."""
        return ending_together()

    # Construction.

    def __init__(self, args: Any, template: Any, **kwargs: Any) -> None:
        log_from_last_rank()
        with self._ending_together():
            self.rows = Rows(self)
            self.rollout = Rollout(self)
            self.held_out = MegatronHeldOut(self, current_settings())
            self.scoring = Scoring(self)
            self.rank_scoring = RankScoring(self, self.scoring)
            super().__init__(args, template, **kwargs)
            for model in self.unwrapped_models:
                turn_off_unasked_dropout(model, part="megatron")
            self.output_layers = OutputLayers([*self.unwrapped_models, *self.ref_models])
            self.passes = MegatronPasses(self, current_settings())
            sizes, line = cut_by_groups(self, current_settings(), "shared_prefix" in self.passes.features)
            self.micro_batch_size = sizes.batch
            self.args.num_microbatches = sizes.accumulation
            refuse_cut_groups(self)
            self.passes.tell(line)
            self.passes.changed = lambda: tell_gains(
                self, self.passes.features, sizes, line, self.passes.tell
            )
            self.passes.changed()
            self.guard = Guard(0 if self.is_main_process else self.process_index or self.world_size)
            self.watching = Watching(self)

    def _prepare_rewards(self) -> None:
        names = names_of(self.args.reward_funcs)
        super()._prepare_rewards()
        self.reward_functions = list(self.reward_funcs)
        self.scoring.guard(names)

    # Training.

    def train(self, train_dataset: Any, val_dataset: Any) -> None:
        """Train; an exception on one rank ends all.

        Raises:
            SystemExit: The run was asked to end, or nothing was scored: docs/parts/callbacks.md.
        """
        self.train_dataset = train_dataset
        self.eval_dataset = val_dataset
        folder = Path(self.args.output_dir)
        with self._ending_together(), claimed(folder, writes=self.is_main_process):
            tell_frame(self.reward_functions, frame_of(self.template.config))
            self.held_out.begin()
            with self.watching.watching():
                super().train(train_dataset, val_dataset)
            self.held_out.end()
        self.watching.leave()

    def setup_training(self, *args: Any, **kwargs: Any) -> Any:
        """Model, optimizer and data are made ready."""
        ready = super().setup_training(*args, **kwargs)
        self.watching.begin()
        return ready

    def train_step(self, train_data_iterator: Any) -> Any:
        """One update; a generation batch comes before the first."""
        with self.watching.step():
            metrics, grad_norm, updated = super().train_step(train_data_iterator)
        if self.watching.end_update(grad_norm, updated):
            self.args.train_iters = self.state.iteration + 1
            self.state.should_save = True
        return metrics, grad_norm, updated

    def on_log(self, logs: dict[str, Any], prefix: str = "") -> None:
        """Log, with the figures of the monitors."""
        with self.watching.phase("log"):
            if prefix:
                self.held_out.settle()
            logs.update(self.held_out.figures if prefix else self.watching.figures())
            # ms-swift puts means into this mapping, and reads them there to find the best checkpoint.
            super().on_log(logs, prefix)

    def evaluate(self, val_data_iterator: Any) -> Any:
        """An evaluation, which has generation batches of its own."""
        with self.watching.phase("evaluate"), self.held_out.evaluating():
            metrics = super().evaluate(self.held_out.from_the_first(val_data_iterator))
        # ms-swift looks for the best where a checkpoint is due; all ranks get the same answer.
        if self.held_out.active and self._determine_best_metric(metrics):
            self.state.should_save = True
        return metrics

    def save_checkpoint(self) -> Any:
        """Write a checkpoint."""
        with self.watching.phase("save"):
            return super().save_checkpoint()

    def get_num_iters_per_step(self) -> int:
        """Batches of prompts in a generation batch: the dataset is read in the user's micro-batches."""
        with swapped(self, "micro_batch_size", self.args.micro_batch_size):
            return int(super().get_num_iters_per_step())

    # A generation batch: roll out, score, prepare, finish, log.

    def _generate_and_score_completions(self, inputs: list[Any]) -> list[Inputs]:
        self.watching.engine_check.begin()
        reading = self.watching.engine_check.reading_prompts(grpo_trainer)
        with self.passes.generation_batch(), reading, self.watching.phase("prepare"):  # less those inside it
            return super()._generate_and_score_completions(inputs)

    def resample_encode_failed_inputs(self, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Leave rows that are too long to `to_samples`, which replaces them on all ranks alike."""
        return inputs

    def to_samples(self, rows: list[Any]) -> Samples:
        """Samples of rows, once every broken row is replaced."""
        return self.rows.named(super().to_samples(self.rows.good(rows)))

    def _generate_completions(self, samples: Samples) -> Samples:
        with self.rows.named_in_errors(samples), self.watching.phase("rollout"):
            return super()._generate_completions(samples)

    def _move_model_to_vllm(self) -> Any:
        with self.watching.phase("weight_sync"):
            return super()._move_model_to_vllm()

    def _get_request_config(self) -> object:
        return self.held_out.greedy(self.rollout.seeded(super()._get_request_config()))

    def _postprocess_rollout_outputs(self, samples: Samples, outputs: Sequence[object]) -> Samples:
        completed = self.rollout.trainable(list(super()._postprocess_rollout_outputs(samples, outputs)))
        self.watching.engine_check.note(completed, outputs)
        return completed

    def _score_completions(self, samples: Samples) -> Tensor:
        with self.watching.phase("reward"):
            self.rows.add_image_columns(samples)
            rewards = self.rank_scoring.settled(samples, super()._score_completions(samples))
            self.held_out.collect(rewards)
            return rewards

    def _dynamic_sampling(self, samples: Samples, rewards_per_func: Tensor) -> tuple[Samples, Tensor]:
        if not rewards_per_func.shape[1]:
            return super()._dynamic_sampling(samples, rewards_per_func)

        def fresh() -> Samples:
            batches = [next(self.resample_data_iterator) for _ in range(self.get_num_iters_per_step())]
            rows = [row for batch in batches for row in batch]
            return self._generate_completions(self.get_local_rollout_batch(self.to_samples(rows)))

        return self.rank_scoring.resampled(samples, rewards_per_func, fresh)

    def _maybe_compute_logps(self, batch: Inputs, teacher_inputs: Any = None) -> Inputs:
        with self.passes.preparing(batch):
            return super()._maybe_compute_logps(batch, teacher_inputs)

    @contextmanager
    def null_ref_context(self) -> Iterator[list[nn.Module]]:
        """The reference's models; what trains beside adapters that are off is as it started."""
        start = self._start
        with super().null_ref_context() as models, self.passes.phase("reference"):
            now = exchanged(self._beside_adapters, start)
            try:
                yield models
            finally:
                exchanged(self._beside_adapters, now)

    @cached_property
    def _start(self) -> dict[str, Tensor]:
        """Values of what trains beside adapters, as the first pass of the reference finds them."""
        return exchanged(self._beside_adapters, {})

    @cached_property
    def _beside_adapters(self) -> dict[str, nn.Parameter]:
        """With ``lora_llm`` tower and aligner, which PEFT does not turn off; else nothing."""
        if "reference_copy" not in self.passes.features:
            return {}
        # The tower is in a rank's first model.
        named = self.model.named_parameters()
        return {
            name: parameter for name, parameter in named if parameter.requires_grad and ".lora_" not in name
        }

    def _compute_teacher_logps(self, *args: Any, **kwargs: Any) -> Tensor:
        with self.passes.phase("teacher"):
            return super()._compute_teacher_logps(*args, **kwargs)

    def compute_per_token_logps(
        self,
        model: nn.Module,
        data_iterator: Iterator[Inputs],
        no_grad: bool = True,
        temperature: float = 1.0,
    ) -> Logps:
        """A pass without an update: of reference, teacher or old policy."""
        stock = partial(super().compute_per_token_logps, model, no_grad=no_grad, temperature=temperature)
        with self.watching.phase(self.passes.phase_now):
            return self.passes.logps(next(data_iterator), stock)

    def _compute_advantages(
        self, samples: Samples, rewards_per_func: Tensor, kl_values: Tensor | None = None
    ) -> Tensor:
        if not rewards_per_func.shape[1]:  # a teacher alone
            return super()._compute_advantages(samples, rewards_per_func, kl_values=kl_values)
        prepared = self.passes.prepared
        advantages = self.rank_scoring.advantages(samples, rewards_per_func, prepared, kl_values)
        self.watching.look_at_rewards(samples, rewards_per_func)
        return advantages

    # An update: the passes and the loss of its micro-batches.

    def forward_step(self, data_iterator: Iterator[Inputs], model: nn.Module) -> tuple[Tensor, Any]:
        """The policy's pass over a micro-batch."""
        if not hasattr(self, "passes"):  # a loss of Ray's workers takes this method and the next from here
            return super().forward_step(data_iterator, model)
        data = next(data_iterator)
        with self.passes.policy(data), self.watching.phase("forward"):
            return super().forward_step(iter([data]), model)

    def loss_func(self, output_tensor: Tensor, data: Inputs) -> tuple[Tensor, Inputs]:
        """The loss of a micro-batch."""
        if not hasattr(self, "passes"):
            return super().loss_func(output_tensor, data)
        grpo_batch = data["grpo_batch"]
        of_first_update = self.passes.note_policy(grpo_batch, output_tensor)
        self.watching.add_policy(grpo_batch, output_tensor, of_first_update)
        with no_phantom_teacher(self, grpo_batch), real_groups(self, grpo_batch):
            return super().loss_func(output_tensor, data)


def join(host: ModuleType) -> None:
    """Let ms-swift build our trainer.

    Raises:
        RefusedError: A method that we change is gone.
    """
    require_overridden(MegatronGRPOTrainer, HostGRPOTrainer, "megatron")
    for place in (host, sys.modules[str(host.__package__)]):  # the package hands on what it has once found
        place.MegatronGRPOTrainer = MegatronGRPOTrainer  # type: ignore[attr-defined]
