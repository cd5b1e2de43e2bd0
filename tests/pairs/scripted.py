"""A scripted trainer that measures, rewards by text, attention by segments: what ms-swift is given in pairs of runs."""

import hashlib
import json
import math
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from swift.arguments.sft_args import SftArguments
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rewards import ORM, orms
from swift.rl_core.data import GRPOBatch
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer
from swift.template import Template
from swift.trainers.trainer_factory import TrainerFactory
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from wrapt import register_post_import_hook

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.grpo import GRPOTrainer

SEGMENTS = "segments"
WORDS = "the digit looks round so answer is zero one two three four five six seven eight nine"


class TextReward(ORM):
    """A number in 0 ... 1 that depends on the completion's text alone."""

    def __call__(self, completions: list[str], **kwargs: object) -> list[float | None]:
        """Score each completion by a hash of its text."""
        return list(map(_of_text, completions))


class SomeScores(ORM):
    """The same for some completions, None for the others, an infinity for a few."""

    def __call__(self, completions: list[str], **kwargs: object) -> list[float | None]:
        """Score each completion, or not, by a hash of its text."""
        marks = [_of_text(text[::-1]) for text in completions]
        return [
            None if mark < 0.35 else math.inf if mark < 0.43 else _of_text(text)
            for mark, text in zip(marks, completions, strict=True)
        ]


def _of_text(text: str) -> float:
    return hashlib.sha256(text.encode()).digest()[0] / 255


def scripted(request: Any, place: int, template: Template, limit: int) -> RolloutOutput:
    """What an engine answers to a request, or a sample, at a place in its group, in ``limit`` tokens."""
    images = [Path(str(image)).name for image in request.images]
    texts = [[message["role"], str(message["content"])] for message in request.messages]
    generator = random.Random(json.dumps([texts, images, place]))
    words = generator.choices(WORDS.split(), k=generator.randint(1, 3))
    tokenizer = template.tokenizer
    tokens = tokenizer.encode(" ".join(words))[:limit]
    message = ChatMessage("assistant", tokenizer.decode(tokens))
    choice = ChatCompletionResponseChoice(0, message, "stop", token_ids=tokens)
    usage = UsageInfo(0, len(tokens), len(tokens))
    return RolloutOutput(response=ChatCompletionResponse("scripted", [choice], usage))


class Scripted(HostGRPOTrainer):
    """A GRPO trainer whose completions depend on prompt and place in the group, however a step is cut.

    `measured` are the largest distances of a run: ``log_ratio`` of the policy's from the old log-probs,
    and ``reference`` of a LoRA run's reference from the base model.
    """

    measured: ClassVar[dict[str, float]] = {}
    with_reference: ClassVar[bool] = False
    _latest: Tensor  # log-probs of the latest pass
    _base: Any = None

    def _engine_infer(
        self, infer_requests: list[object], *args: object, **kwargs: object
    ) -> list[RolloutOutput]:
        first = self.accelerator.process_index * len(infer_requests)
        places = ((first + row) % self.num_generations for row in range(len(infer_requests)))
        return list(map(self._answer, infer_requests, places))

    def _answer(self, request: Any, place: int) -> RolloutOutput:
        return scripted(request, place, self.template, self.max_completion_length)

    def _prepare_batch_inputs(self, samples: list[Any]) -> list[dict[str, object]]:
        batches = super()._prepare_batch_inputs(samples)
        for batch in batches if self.with_reference else ():
            self._measure_reference(batch["model_inputs"], batch["grpo_batch"])
        return batches

    def _get_per_token_logps_and_entropies(self, *args: object, **kwargs: object) -> tuple[Any, Any]:
        logps, entropies = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if logps is not None:  # our trainer leaves out an old pass that nobody needs
            self._latest = logps.detach()
        return logps, entropies

    def _compute_loss_and_metrics(
        self, model: nn.Module, model_inputs: dict[str, Any], grpo_batch: GRPOBatch
    ) -> tuple[Tensor, dict[str, Any]]:
        result: tuple[Tensor, dict[str, Any]] = super()._compute_loss_and_metrics(
            model, model_inputs, grpo_batch
        )
        old = grpo_batch.old_per_token_logps  # where there are none, the loss takes the policy's own
        self._measure("log_ratio", self._latest - (self._latest if old is None else old), grpo_batch)
        return result

    @torch.no_grad()
    def _measure_reference(self, model_inputs: dict[str, Any], grpo_batch: GRPOBatch) -> None:
        """Log-probs of the base model, loaded from its folder, against those with the adapters off."""
        if self._base is None:
            base = self.accelerator.unwrap_model(self.model).get_base_model()
            self._base = type(base).from_pretrained(base.model_dir, dtype=base.dtype).to(base.device).eval()
            for name in ("model_meta", "model_info"):
                setattr(self._base, name, getattr(base, name))
            self._base.register_forward_pre_hook(self.template.pre_forward_hook, with_kwargs=True)
        logps = self._get_per_token_logps_and_entropies(self._base, model_inputs, grpo_batch)[0]
        self._measure("reference", logps - grpo_batch.ref_per_token_logps, grpo_batch)

    def _measure(self, key: str, difference: Tensor, grpo_batch: GRPOBatch) -> None:
        largest = (difference * grpo_batch.completion_mask).abs().max().item()
        self.measured[key] = max(self.measured.get(key, 0.0), largest)


class OurTrainer(Scripted, GRPOTrainer):
    """Our trainer."""


class StockTrainer(Scripted):
    """ms-swift's own."""


def attend_segments(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attention of each segment to itself alone, by SDPA, ``(batch, seq, heads, head_dim)``."""
    if cu_seq_lens_q is None:  # transformers makes the mask from position ids that start again
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    parts = [
        sdpa_attention_forward(module, *(t[:, :, start:end] for t in (query, key, value)), None, **kwargs)[0]
        for start, end in pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(parts, dim=1), None


def allow_segments() -> None:
    """Let ``--attn_impl`` know them, and ``--padding_free`` take them."""
    AttentionInterface.register(SEGMENTS, attend_segments)
    AttentionMaskInterface.register(SEGMENTS, sdpa_mask)
    SftArguments._check_padding_free = lambda self: None  # it asks for flash attention


def install() -> None:
    """Make ms-swift build one of these trainers and know these rewards, in this process."""
    orms.update(by_text=TextReward, by_some_text=SomeScores)
    trainer = StockTrainer if os.environ.get("PAIRS_STOCK") else OurTrainer
    TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.{trainer.__name__}"
    allow_segments()


def script_megatron() -> None:
    """Let the Megatron trainer of this process, a child that trains once, have scripted completions."""
    register_post_import_hook(_without_engine, "swift.megatron.trainers.rollout_mixin")


def _without_engine(host: ModuleType) -> None:
    """Give Megatron's trainer scripted completions in the place of vLLM's."""
    mixin = host.MegatronRolloutMixin
    start = mixin._init_rollout_engine

    def begin(trainer: Any) -> None:
        trainer.args.use_vllm = False  # the arguments demand vLLM, which nothing needs from here on
        start(trainer)

    def complete(trainer: Any, samples: list[Any]) -> object:
        samples = trainer._preprocess_inputs(samples)
        first = dist.get_rank(trainer._get_rollout_group()) * len(samples)
        answers = [
            scripted(
                request, place % trainer.num_generations, trainer.template, trainer.max_completion_length
            )
            for place, request in enumerate(trainer.samples2requests(samples), first)
        ]
        return trainer._postprocess_rollout_outputs(samples, answers)

    mixin._init_rollout_engine = begin
    mixin._generate_completions = complete


@contextmanager
def installed(with_reference: bool = False) -> Iterator[dict[str, float]]:
    """Install for a run in this process, with empty measurements; afterwards ms-swift is as it was."""
    Scripted.measured.clear()
    own = dict(TrainerFactory.TRAINER_MAPPING)
    with (
        swapped(TrainerFactory, "TRAINER_MAPPING", own),
        swapped(SftArguments, "_check_padding_free", None),
        swapped(Scripted, "with_reference", with_reference),
    ):
        install()
        yield Scripted.measured
