"""The host's trainer and ours, built by the host's own pipeline on one checkpoint, with made-up rollouts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from bench_measure import Peak, peak_memory, timed
from bench_operations import Case
from torch import Tensor

HOST = "swift.rlhf_trainers.GRPOTrainer"
OURS = "swift_grpo_ext.trainer.grpo.GRPOTrainer"


@dataclass
class Update:
    """One update phase: passes, loss and backward, without rollout and optimizer step.

    Attributes:
        seconds: Wall clock.
        peak: Memory at its peak and at its start.
        logps: Policy's log-probs of the completions, ``(batch, keep)``.
        gradients: By parameter name; only when asked for.
        tower_calls: Times that the vision tower ran.
        tokens: Tokens that went through the language model, all passes.
        phases: Seconds in the tower, and in the language model without and with gradients; the rest of
            ``seconds`` is preparation, output layer, loss and backward.
    """

    seconds: float = 0.0
    peak: Peak = field(default_factory=Peak)
    logps: Tensor | None = None
    gradients: dict[str, Tensor] = field(default_factory=dict)
    tower_calls: int = 0
    tokens: int = 0
    phases: dict[str, float] = field(default_factory=dict)


def build_trainer(
    class_path: str, model: Path, dataset: Path, output: Path, case: Case, **arguments: Any
) -> Any:
    """A trainer as ``swift rlhf`` builds it, not started.

    Args:
        class_path: Dotted path of the trainer class.
        model: Checkpoint folder.
        dataset: JSONL of the host's format.
        output: Output folder.
        case: Group, completion and beta.
        **arguments: Other arguments of the host.
    """
    from swift.pipelines.train.rlhf import SwiftRLHF
    from swift.trainers.trainer_factory import TrainerFactory

    from swift_grpo_ext import testing

    class BuildOnly(SwiftRLHF):
        def train(self, trainer: Any) -> Any:
            return trainer

    chosen = {
        "num_generations": case.group,
        "per_device_train_batch_size": case.group,
        "max_completion_length": case.completion,
        "max_length": 2 * (case.prompt + case.completion),
        "beta": case.beta,
        "gradient_checkpointing": case.checkpointing,
        "learning_rate": 0.0,
        "max_steps": 1,
        "log_completions": False,
        "reward_funcs": "format",
        **arguments,
    }
    words = testing.grpo_arguments(model, dataset, output, **chosen)
    pipeline = BuildOnly(words)
    TrainerFactory.TRAINER_MAPPING["grpo"] = class_path
    try:
        return pipeline.main()
    finally:
        TrainerFactory.TRAINER_MAPPING["grpo"] = OURS


def made_up_tokens(tokenizer: Any, length: int, seed: int) -> Callable[[], list[int]]:
    """Draws random completions of ordinary tokens: equal for equal seeds."""
    numbers = random.Random(seed)
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ordinary = [token for token in range(len(tokenizer)) if token not in special]
    return lambda: numbers.choices(ordinary, k=length)


def made_up_rollouts(trainer: Any, case: Case, seed: int) -> None:
    """Let the trainer's engine answer with random text of the given length: equal for equal seeds."""
    from swift.infer_engine.protocol import (
        ChatCompletionResponse,
        ChatCompletionResponseChoice,
        ChatMessage,
        RolloutOutput,
        UsageInfo,
    )

    draw = made_up_tokens(trainer.template.tokenizer, case.completion, seed)

    def answer(infer_requests: Any, request_config: Any = None, **kwargs: Any) -> list[Any]:
        outputs = []
        for _ in infer_requests:
            ids = draw()
            message = ChatMessage(role="assistant", content=trainer.template.tokenizer.decode(ids))
            choice = ChatCompletionResponseChoice(0, message, "length", token_ids=ids)
            usage = UsageInfo(0, len(ids), len(ids))
            outputs.append(RolloutOutput(response=ChatCompletionResponse("made up", [choice], usage)))
        return outputs

    trainer._engine_infer = answer
    made_up_rewards(trainer, seed)


def made_up_rewards(trainer: Any, seed: int, silent: int = 0) -> None:
    """Let the trainer score completions at random, equal for equal seeds; all alike the first ``silent``."""
    from accelerate.utils import gather

    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    rewards = random.Random(seed + 1 + 1000 * rank)

    def score(samples: Any) -> Tensor:
        scores = [[rewards.random()] for _ in samples]
        rows = [[1.0]] * silent + scores[silent:]
        found: Tensor = gather(torch.tensor(rows, device=trainer.accelerator.device))
        return found

    trainer._compute_rewards_per_func = score


def run_update(trainer: Any, keep_gradients: bool = False) -> Update:
    """One call of the trainer's own ``train``, whose training steps are measured: one for each micro-batch.

    With the rollouts made up that is: encoding and collating, old and reference passes, policy pass, loss and
    backward.
    """
    done, policy = Update(), []
    step, scores = trainer.training_step, trainer._get_per_token_logps_and_entropies
    device = trainer.accelerator.device

    def training_step(*args: Any, **kwargs: Any) -> Any:
        with peak_memory(device) as peak:
            seconds, result = timed(lambda: step(*args, **kwargs), device)
        done.peak = Peak(done.peak.base or peak.base, max(done.peak.bytes, peak.bytes))
        done.seconds += seconds
        if keep_gradients:
            named = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
            done.gradients = {name: p.grad.to("cpu", copy=True) for name, p in named if p.grad is not None}
        return result

    def remember(*args: Any, **kwargs: Any) -> Any:
        found = scores(*args, **kwargs)
        if found[0] is not None and found[0].requires_grad:
            policy.append(found[0].detach())
        return found

    replaced = {"training_step": training_step, "_get_per_token_logps_and_entropies": remember}
    trainer._step, trainer._buffered_inputs = 0, None
    with attributes(trainer, replaced), counted(trainer, done):
        trainer.train()
    done.logps = torch.cat(policy)
    return done


def _kind_of_pass() -> str:
    return "pass with gradients" if torch.is_grad_enabled() else "passes without gradients"


def _clock(module: Any, seconds: dict[str, float], name: Callable[[], str]) -> list[Any]:
    """Hooks that add up the time of a module's calls, by the name that each has."""
    begun: list[float] = []

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def end(*_: Any) -> None:
        seconds[name()] = seconds.get(name(), 0.0) + now() - begun.pop()

    start = module.register_forward_pre_hook(lambda *_: begun.append(now()))
    return [start, module.register_forward_hook(end)]


@contextmanager
def no_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Let dropout drop nothing for a while, also where a trainer switches the model to training."""
    rates = {part: part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)}
    for part in rates:
        part.p = 0.0
    try:
        yield
    finally:
        for part, rate in rates.items():
            part.p = rate


@contextmanager
def attributes(owner: Any, values: dict[str, Any]) -> Iterator[None]:
    """Let the owner have other attributes of its own for a while."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in values:
            delattr(owner, name)
        vars(owner).update(before)


@contextmanager
def counted(trainer: Any, done: Update) -> Iterator[None]:
    """Count tower calls, by a part that nothing stands in for, tokens of the language model, and seconds."""
    from swift_grpo_ext.models.derived import speaking_model
    from swift_grpo_ext.models.families import family_of

    handles = []

    def tower_called(*_: Any) -> None:
        done.tower_calls += 1

    def text_called(module: Any, args: Any, kwargs: Any) -> None:
        embeddings = kwargs["inputs_embeds"]
        done.tokens += embeddings.shape[0] * embeddings.shape[1]

    for model in filter(None, (trainer.model, trainer.ref_model)):
        base = trainer.accelerator.unwrap_model(model)
        if hasattr(trainer, "template"):
            base = trainer.template.get_base_model(base)
        elif hasattr(base, "get_base_model"):
            base = base.get_base_model()
        base = speaking_model(base)
        family = family_of(base.config)
        tower = base.get_submodule(family.vision_tower[0])
        parts = (getattr(tower, name, None) for name in ("patch_embed", "transformer", "embeddings"))
        inner = next(part for part in parts if part is not None)
        text = base.get_submodule(family.language_model[0])
        handles.append(inner.register_forward_hook(tower_called))
        handles.append(text.register_forward_pre_hook(text_called, with_kwargs=True))
        handles += _clock(tower, done.phases, lambda: "tower")
        handles += _clock(text, done.phases, _kind_of_pass)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
