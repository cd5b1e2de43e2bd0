"""The trainer that ms-swift builds for ``--rlhf_type grpo``: the script of a run, in the order of calls."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import PreTrainedModel
from transformers.trainer_utils import TrainOutput

from swift_grpo_ext.compat.refusals import RefusableRun, refuse
from swift_grpo_ext.folders import claimed
from swift_grpo_ext.models.families import frame_of
from swift_grpo_ext.ms_swift.arguments import GRPOConfig
from swift_grpo_ext.ms_swift.hf import GRPOTrainer as HostGRPOTrainer
from swift_grpo_ext.ms_swift.overrides import require_overridden
from swift_grpo_ext.ms_swift.shared import (
    GRPOBatch,
    RequestConfig,
    RolloutInferRequest,
    RolloutOutput,
    TrainerCallback,
)
from swift_grpo_ext.rewards.registration import tell_frame
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.console import print_lines
from swift_grpo_ext.trainer.distributed import ending_together
from swift_grpo_ext.trainer.engine_check import EngineCheck
from swift_grpo_ext.trainer.evaluation import TrainerHeldOut, fit_evaluation_batch
from swift_grpo_ext.trainer.group_cut import cut_by_groups
from swift_grpo_ext.trainer.host import Early
from swift_grpo_ext.trainer.image_memory import bound_prepared_images
from swift_grpo_ext.trainer.logging import Logging
from swift_grpo_ext.trainer.look_ahead import LookAhead
from swift_grpo_ext.trainer.loss_fixes import chunks_add_up, loss_fixes, over_our_pass, reduced_once
from swift_grpo_ext.trainer.monitors import Monitors
from swift_grpo_ext.trainer.noise import turn_off_unasked_dropout
from swift_grpo_ext.trainer.out_of_memory import named_while_generating
from swift_grpo_ext.trainer.passes import Passes
from swift_grpo_ext.trainer.reference import Reference
from swift_grpo_ext.trainer.resuming import load_translated, over_epochs
from swift_grpo_ext.trainer.rollout import Rollout, resampled
from swift_grpo_ext.trainer.rows import Rows, require_enough
from swift_grpo_ext.trainer.samples import (
    Batch,
    Batches,
    Inputs,
    LossValue,
    Rewards,
    Row,
    Samples,
    Scores,
    VisionSample,
)
from swift_grpo_ext.trainer.scoring import RewardFunctions, Scoring, names_of
from swift_grpo_ext.watch.checkpoints import exit_status_of_saving, require_whole, saving
from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.watch import EvaluationLeft, NothingTrained


class GRPOTrainer(HostGRPOTrainer):
    """ms-swift's GRPO trainer with every method that we change, once; what they call owns its state."""

    sample_cls = VisionSample

    # Construction.

    def __init__(self, model: PreTrainedModel | PeftModel, *args: Any, **kwargs: Any) -> None:
        with ending_together():
            require_overridden(GRPOTrainer, HostGRPOTrainer, part="trainer")
            refuse(RefusableRun({"streaming": not hasattr(kwargs.get("train_dataset", ()), "__len__")}))
            self.guard = Guard(int(getattr(kwargs["args"], "process_index", 0)))
            turn_off_unasked_dropout(model)
            early = Early(model, kwargs["template"], kwargs["args"], bool(model.model_meta.is_multimodal))
            self.cut = cut_by_groups(early, current_settings())
            if not current_settings().disables("trainer.held_out"):
                fit_evaluation_batch(kwargs.get("eval_dataset"), early.args)
            self.rows = Rows(self)
            self.rollout = Rollout(self)
            self.scoring = Scoring(self)
            self.logging = Logging(self)
            self.monitors = Monitors(self)
            self.held_out = TrainerHeldOut(self, current_settings())
            self.reference = Reference(self)
            super().__init__(model, *args, **kwargs)
            require_enough(len(self.train_dataset), self.args.generation_batch_size // self.num_generations)
            bound_prepared_images(self)
            self.look_ahead = LookAhead(self)
            self.monitors.begin()
            self.held_out.begin()
            if current_settings().console != "all":
                print_lines(self, self.held_out.newest)

    def _get_callbacks(self, args: GRPOConfig) -> list[TrainerCallback]:
        return self.monitors.among(super()._get_callbacks(args), args)

    def _prepare_rewards(
        self,
        reward_funcs: RewardFunctions,
        reward_model: list[nn.Module] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        names = names_of(reward_funcs)  # ms-swift puts functions in their place
        super()._prepare_rewards(reward_funcs, reward_model, *args, **kwargs)
        tell_frame(self.reward_funcs, frame_of(self.model.config))
        self.scoring.guard(names)

    @cached_property
    def passes(self) -> Passes:
        """Made at the first generation batch, when the models are in their wrappers."""
        return Passes(self, current_settings(), self.cut)

    @cached_property
    def engine_check(self) -> EngineCheck:
        """Made with the passes, which know whether it is on."""
        return EngineCheck(self, self.guard, "engine_check" in self.passes.features)

    # Training.

    def train(self, resume_from_checkpoint: str | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train; an exception on one rank ends all.

        Raises:
            CheckpointError: The run is to go on from half a checkpoint.
            SystemExit: It was asked to end, could not save, or nothing was scored: docs/parts/callbacks.md.
        """
        if not self.args.resume_only_model:
            require_whole(resume_from_checkpoint)
        with (
            exit_status_of_saving(),
            ending_together(),
            claimed(Path(self.args.output_dir), writes=self.accelerator.is_main_process),
            self.monitors.watching(),
            closing(self.look_ahead),
        ):
            self.held_out.resume(resume_from_checkpoint)
            with suppress(NothingTrained):  # its exit status is set
                result = super().train(resume_from_checkpoint, *args, **kwargs)
                self.held_out.end()
        self.monitors.leave()
        return result

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        return over_epochs(super()._get_train_sampler(train_dataset), self)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if not load_translated(self, resume_from_checkpoint, model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def get_batch_samples(
        self, epoch_iterator: Iterator[list[Row]], *args: Any, **kwargs: Any
    ) -> tuple[list[Any], Int[Tensor, ""] | int | None]:
        """The next rows of the dataset; images of those behind them are prepared meanwhile."""
        with self.monitors.phase("data"):
            return super().get_batch_samples(self.look_ahead.over(epoch_iterator), *args, **kwargs)

    def training_step(
        self, model: nn.Module, inputs: list[Row], *args: Any, **kwargs: Any
    ) -> Float[Tensor, ""]:
        """One micro-batch; a generation batch comes before the first."""
        with self.monitors.phase("backward"):  # less the phases inside it
            step = partial(super().training_step, model, inputs, *args, **kwargs)
            loss = self.passes.halves.step(step, model)
        self.passes.end_micro_batch()
        self.monitors.end_micro_batch()
        return loss

    # A generation batch: roll out, score, prepare, finish, log.

    def _generate_and_score_completions(self, inputs: list[Row]) -> Batches:
        self.passes.start_generation_batch()
        with self.monitors.phase("prepare"):  # less the phases inside it
            return self.passes.stored(super()._generate_and_score_completions(inputs))

    def resample_encode_failed_inputs(self, inputs: list[Row], *args: Any, **kwargs: Any) -> list[Row]:
        """Leave rows that are too long to `to_samples`: ms-swift replaces copies, group or not (F19)."""
        return inputs

    def to_samples(self, rows: list[Row | VisionSample]) -> Samples:
        """Samples of rows, once every broken row is replaced."""
        return self.rows.named(super().to_samples(self.rows.good(rows)))

    def _generate_completions(self, samples: Samples) -> Samples:
        self.engine_check.begin()
        with (
            self.rows.named_in_errors(samples),
            self.monitors.phase("rollout"),
        ):
            completed: Samples = super()._generate_completions(samples)
        return completed

    def _add_prompt_id_to_inputs(self, samples: Samples) -> Samples:
        return self.rows.number_prompts(samples)

    def _move_model_to_vllm(self, *args: Any, **kwargs: Any) -> None:
        with self.monitors.phase("weight_sync"):
            super()._move_model_to_vllm(*args, **kwargs)

    def _get_request_config(self) -> RequestConfig:
        return self.held_out.greedy(self.rollout.seeded(super()._get_request_config()))

    def _engine_infer(
        self,
        infer_requests: list[RolloutInferRequest],
        request_config: RequestConfig | None = None,
        **options: Any,
    ) -> list[RolloutOutput]:
        with self.passes.sampling(), self.monitors.encoding(), named_while_generating():
            self.rollout.expect(infer_requests)
            self.rollout.agree(infer_requests, request_config)
            infer = partial(super()._engine_infer, **options)
            if not self.args.use_vllm:
                return self.rollout.in_batches(infer_requests, request_config, infer)
            if "shared_prefill" not in self.passes.features:
                return infer(infer_requests, request_config)
            return self.rollout.ask(infer_requests, request_config, infer)

    def _sort_by_request_id(self, all_outputs: list[RolloutOutput]) -> list[RolloutOutput]:
        return self.rollout.in_order(all_outputs)

    def _postprocess_rollout_outputs(self, samples: Samples, outputs: list[RolloutOutput]) -> Samples:
        completed = self.rollout.trainable(list(super()._postprocess_rollout_outputs(samples, outputs)))
        self.engine_check.note(completed, outputs)
        return completed

    def _compute_rewards_per_func(self, samples: Samples) -> Rewards:
        with self.monitors.phase("reward"):
            self.rows.add_image_columns(samples)
            rewards = self.scoring.settled(samples, super()._compute_rewards_per_func(samples))
        self.held_out.collect(rewards)
        return rewards

    def _dynamic_sampling(self, samples: Samples, rewards_per_func: Rewards) -> tuple[Samples, Rewards]:
        return resampled(self, samples, rewards_per_func)

    def compute_std(self, samples: Samples, rewards_per_func: Rewards) -> Float[Tensor, " completions"]:
        """Deviation of the rewards of each completion's group; 0 sends it to resampling."""
        return self.scoring.baselines.deviations(samples, rewards_per_func)

    def _prepare_batch_inputs(self, samples: Samples) -> Batches:
        self.passes.old.begin(samples)
        host = sys.modules[HostGRPOTrainer.__module__]
        with self.passes.batches.preparing(self, samples), self.engine_check.reading_prompts(host):
            return list(super()._prepare_batch_inputs(samples))

    def _collate_teacher_opsd_batch(self, *args: Any, **kwargs: Any) -> tuple[Inputs, GRPOBatch]:
        inputs, grpo_batch = super()._collate_teacher_opsd_batch(*args, **kwargs)
        self.passes.batches.of(grpo_batch)  # recorded: its first pass is the teacher's, not an old one
        return inputs, grpo_batch

    def _postprocess_batch(self, samples: Samples, batch_encoded_inputs: Batches) -> None:
        super()._postprocess_batch(samples, batch_encoded_inputs)
        self.scoring.baselines.leave_out_unscored(samples, batch_encoded_inputs)

    def _compute_advantages(
        self, samples: Samples, rewards_per_func: Rewards, batch_encoded_inputs: Batches
    ) -> Float[Tensor, " completions"]:
        baselines = self.scoring.baselines
        return baselines.advantages(samples, rewards_per_func, baselines.kl_penalty(batch_encoded_inputs))

    def _log_rollout(self, samples: Samples) -> None:
        super()._log_rollout(samples)
        self.logging.add_columns(samples)
        self.monitors.look_at_rollout(samples)

    # A pass: old, reference or policy.

    def _get_per_token_logps_and_entropies(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch, *args: Any, **kwargs: Any
    ) -> Scores | tuple[None, None]:
        phase = self.passes.phase_of(model, grpo_batch)
        record = self.passes.batches.of(grpo_batch)
        if phase == "old" and self.passes.old.is_needless(record):
            return None, None
        stock = super()._get_per_token_logps_and_entropies
        with self.monitors.phase(phase), self.passes.in_packs(model, model_inputs, grpo_batch):
            logps, entropies = stock(model, model_inputs, grpo_batch, *args, **kwargs)
        self.logging.note_pass(logps)
        if phase == "old" or (phase == "forward" and record.first_update):
            self.engine_check.add(grpo_batch, logps, record.forwarded, record.samples)
        self.passes.old.note(record, grpo_batch, logps)
        self.monitors.add_pass(logps, grpo_batch, record.forwarded)
        self.monitors.tracer.look_at_pass(logps, grpo_batch, stock, model, model_inputs, record.samples)
        return logps, entropies

    def _get_per_token_logps_and_entropies_single(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch, compute_entropy: bool = False
    ) -> Scores:
        stock = super()._get_per_token_logps_and_entropies_single
        return self.passes.logps(model, model_inputs, grpo_batch, compute_entropy, stock)

    @contextmanager
    def null_ref_context(self) -> Iterator[None]:
        """While this is open, the policy is the reference."""
        copied = "reference_copy" in self.passes.features
        with self.reference.standing_in() if copied else super().null_ref_context():
            yield

    # The loss of a micro-batch.

    def compute_loss(
        self, model: nn.Module, inputs: Batch | Batches, *args: Any, **kwargs: Any
    ) -> Float[Tensor, ""]:
        """The loss, looked at; liger's over our log-probs."""
        liger = over_our_pass(self, self.passes.features, model, inputs)
        with self.monitors.phase("forward"), liger, reduced_once(self, model):
            loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.monitors.tracer.look_at_loss(loss)
        return loss

    def _compute_loss(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch, *args: Any
    ) -> Float[Tensor, ""]:
        with self.passes.in_packs(model, model_inputs, grpo_batch):
            return super()._compute_loss(model, model_inputs, grpo_batch, *args)

    def _compute_loss_chunked(
        self, model: nn.Module, inputs: Inputs, grpo_batch: GRPOBatch, *args: Any
    ) -> Float[Tensor, ""]:
        with chunks_add_up(self, grpo_batch):
            return super()._compute_loss_chunked(model, inputs, grpo_batch, *args)

    def _compute_loss_and_metrics(
        self, model: nn.Module, model_inputs: Inputs, grpo_batch: GRPOBatch
    ) -> tuple[Float[Tensor, ""], dict[str, Any]]:
        with loss_fixes(self, grpo_batch):
            loss, metrics = super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)
        self.logging.add_kl(grpo_batch, metrics)
        return loss, metrics

    def _update_metrics(self, metrics_data: dict[str, Any]) -> None:
        self.logging.replace_nan(metrics_data)
        super()._update_metrics(metrics_data)

    # After an optimizer step.

    def _maybe_log_save_evaluate(
        self, tr_loss: LossValue, grad_norm: float | LossValue | None = None, *args: Any, **kwargs: Any
    ) -> None:
        self.monitors.end_step(grad_norm, self.passes.work.drain(), self.engine_check.compare())
        with self.monitors.phase("log"):
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, without NaN."""
        self.held_out.settle()
        self.logging.complete()
        super().log(logs, start_time)

    # An evaluation, which has generation batches of its own.

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler[int] | None:
        return self.held_out.in_order(eval_dataset) or super()._get_eval_sampler(eval_dataset)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Answers to held-out rows, scored."""
        with self.monitors.phase("evaluate"), self.held_out.evaluating():
            return super().evaluate(*args, **kwargs)

    def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._evaluate(*args, **kwargs)
        except EvaluationLeft:
            self._metrics["eval"].clear()
            return {}

    def _determine_best_metric(self, metrics: dict[str, float], *args: Any, **kwargs: Any) -> bool:
        # It was left, or no row was scored.
        if not metrics or (self.held_out.active and self.held_out.newest() is None):
            return False
        self.held_out.prefer_last(metrics)
        return self.held_out.saved_if_best(super()._determine_best_metric(metrics, *args, **kwargs))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        first = self.accelerator.is_main_process
        folder = Path(self.args.output_dir)
        with self.monitors.phase("save"), saving(folder, self.state.global_step, first):
            super()._save_checkpoint(*args, **kwargs)
            self.reference.save(folder / f"checkpoint-{self.state.global_step}")
