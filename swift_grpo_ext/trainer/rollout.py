"""Rollouts: ranks agree on what they ask an engine, and every completion can be trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from swift.infer_engine import RequestConfig

from swift_grpo_ext.models.families import forbidden_token_ids
from swift_grpo_ext.trainer.empty_completions import fill_empty
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.placeholders import cut_placeholders
from swift_grpo_ext.trainer.requests_once import completions_per_request, one_by_one, seeds_apart
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.tensor_parallel import agree, request_digest, seed_of

if TYPE_CHECKING:
    from swift.infer_engine.protocol import RolloutInferRequest

Asked = Callable[["Sequence[RolloutInferRequest]", RequestConfig], "list[object]"]


class Rollout:
    """What stands between the trainer and its engine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._generations = 0

    def agree(self, infer_requests: Sequence[RolloutInferRequest], request_config: RequestConfig) -> None:
        """Before a tensor-parallel engine generates, its ranks compare requests.

        vLLM in colocate mode runs one engine over the ranks of a group. If they hold different requests,
        their collectives differ in number or shape and all hang.

        Raises RolloutError: They do; on every rank.
        """
        if self._shares_engine():
            agree(request_digest(infer_requests, request_config), self._host.tp_group)

    def seeded(self, config: RequestConfig) -> RequestConfig:
        """The sampling settings with a seed of this generation's own.

        ms-swift seeds the ranks of a group alike, but with the same seeds in every step and for every
        ``--seed``.
        """
        if self._shares_engine():
            self._generations = max(self._generations, self._host.state.global_step) + 1
            return replace(config, seed=seed_of(self._host.args.seed, self._generations, config.seed))
        return config

    def ask(self, requests: Sequence[RolloutInferRequest], config: RequestConfig, asked: Asked) -> object:
        """Answers of the engine, one for each request; a group's prompt is handed to vLLM once."""
        host, server = self._host, self._host.vllm_mode == "server"
        engine = host.vllm_client if server else host.engine
        greedy = config is not None and config.temperature == 0  # vLLM refuses several of the same
        if config is None or config.n != 1 or greedy:
            return asked(requests, config)
        comms = host.vllm_client.pynccl_comms if server else ()
        size = completions_per_request(requests, sum(one.world_size - 1 for one in comms) or 1)
        if size == 1:
            return asked(requests, config)
        with nullcontext() if server else seeds_apart(engine, size):
            return one_by_one(asked(requests[::size], replace(config, n=size)), size)

    def trainable(self, samples: list[VisionSample]) -> list[VisionSample]:
        """The samples with a token in every turn, and without image placeholders.

        Engines are told not to sample placeholders. One that does not know (a rollout server without our
        plugin) may send some; encoded with its prompt, such a completion would crash the forward or pass for
        a part of an image.
        """
        host, tokenizer = self._host, self._host.template.tokenizer
        token = tokenizer.eos_token_id if host.args.use_vllm else tokenizer.pad_token_id
        forbidden = forbidden_token_ids(host.template.config, tokenizer)
        for sample in samples:
            fill_empty(sample, token)
            if cut_placeholders(sample, forbidden, tokenizer):
                sample.held_placeholder = True
        return samples

    def _shares_engine(self) -> bool:
        return bool(self._host.vllm_mode == "colocate" and self._host.vllm_tensor_parallel_size > 1)
