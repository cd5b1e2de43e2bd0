"""Rollouts: ranks agree on what they ask an engine, ask for a prompt once, and can train on every answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import compress, groupby
from math import gcd
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate.utils import gather_object

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import DatasetRowError, RolloutError
from swift_grpo_ext.models import text
from swift_grpo_ext.models.dataset_rows import key_of_value
from swift_grpo_ext.models.families import forbidden_token_ids, read_token_ids
from swift_grpo_ext.models.images import content_key
from swift_grpo_ext.ms_swift.shared import (
    InferEngine,
    RequestConfig,
    RolloutInferRequest,
    RolloutOutput,
    get_even_process_data,
    get_logger,
)
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.distributed import gathers_parameters
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import (
    Rewards,
    Row,
    Samples,
    VisionSample,
    cut_placeholders,
    fill_empty,
    sampled_tokens,
)

if TYPE_CHECKING:
    from vllm import SamplingParams

Infer = Callable[[Sequence[RolloutInferRequest], RequestConfig], list[RolloutOutput]]


class Rollout:
    """Link between the trainer and its engine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.generations = 0
        self._requests: tuple[str | None, ...] = ()  # ids of the last requests, in their order

    def agree(self, infer_requests: Sequence[RolloutInferRequest], request_config: RequestConfig) -> None:
        """Check that ranks of one engine hold the same requests: with different ones they would deadlock.

        Raises:
            RolloutError: They do not, on every rank.
        """
        if self._shares_engine():
            agree(request_digest(infer_requests, request_config), self._host.tp_group)

    def expect(self, infer_requests: Sequence[RolloutInferRequest]) -> None:
        """Keep the order of the requests that an engine is about to answer."""
        self._requests = tuple(request.uuid for request in infer_requests)

    def in_order(self, outputs: Sequence[RolloutOutput]) -> list[RolloutOutput]:
        """A server's outputs in the order of their requests, of which some have several, in their own order.

        Rows of a prompt then lie side by side, and share it. ms-swift sorts by the requests' random ids.
        """
        place = {request: number for number, request in enumerate(self._requests)}
        return sorted(outputs, key=lambda output: place.get(output.response.id, len(place)))

    def seeded(self, config: RequestConfig) -> RequestConfig:
        """The settings with a seed of this generation's own; ms-swift's is the same in every step."""
        if self._shares_engine():
            self.generations = max(self.generations, self._host.state.global_step) + 1
            seed = random.Random(f"{self._host.args.seed} {self.generations} {config.seed}").getrandbits(31)
            return replace(config, seed=seed)  # the engine's requests count on from it
        return config

    def ask(
        self, requests: Sequence[RolloutInferRequest], config: RequestConfig, infer: Infer
    ) -> list[RolloutOutput]:
        """Answers of the engine, one for each request; a group's prompt is handed to vLLM once."""
        host = self._host
        server = host.vllm_mode == "server"
        # vLLM refuses several greedy completions of a request: they are the same.
        if config is None or config.n != 1 or config.temperature == 0:
            return infer(requests, config)
        comms = host.vllm_client.pynccl_comms if server else ()
        size = completions_per_request(requests, sum(comm.world_size - 1 for comm in comms) or 1)
        if size == 1:
            return infer(requests, config)
        with nullcontext() if server else seeds_apart(host.engine, size):
            return one_by_one(infer(requests[::size], replace(config, n=size)), size)

    def in_batches(
        self, requests: Sequence[RolloutInferRequest], config: RequestConfig, infer: Infer
    ) -> list[RolloutOutput]:
        """Answers of transformers' engine: all requests as one batch, or prompt after prompt.

        The latter where images of several sizes do not stack, as those of Mistral 3 and LLaVA-OneVision.
        """
        host = self._host
        if gathers_parameters(host):  # ranks would generate a different number of times, and wait for ever
            return infer(requests, config)
        with swapped(host.engine.template, "data_collator", _collating(host.engine.template.data_collator)):
            try:
                return infer(requests, config)
            except _DoNotStackError:
                runs = [list(equal) for _, equal in groupby(requests, key=lambda request: request.images)]
        return [output for run in runs for output in infer(run, config)]

    def trainable(self, samples: list[VisionSample]) -> list[VisionSample]:
        """The samples with a token in every turn, and without tokens that the model would read an image for.

        An engine without our guard (a server without our plugin) may sample some: the forward would crash.

        Raises:
            RolloutError: A multi-turn scheduler has left a row with other numbers of tags and media.
        """
        host = self._host
        tokenizer = self._host.template.tokenizer
        token = tokenizer.eos_token_id if host.args.use_vllm else tokenizer.pad_token_id
        placeholders = read_token_ids(host.template.config, tokenizer)
        indicators = {*forbidden_token_ids(host.template.config, tokenizer)} - {*placeholders}
        of_several_turns = host.multi_turn_scheduler or host.enable_server_multi_turn
        for sample in samples:
            if of_several_turns and host.template.model_meta.is_multimodal:
                check_media(sample)
            fill_empty(sample, token, has_ids=not host.args.use_vllm)
            if cut_placeholders(sample, placeholders, tokenizer):
                sample.held_placeholder = True
            elif indicators.intersection(sampled_tokens(sample)):
                get_logger().warning_once(
                    "swift-grpo-ext: completions arrived with image start/end tokens without an image "
                    "between them: the model reads them as text, so they are scored and trained on. Does "
                    "the rollout server load the plugin?"
                )
        return samples

    def _shares_engine(self) -> bool:
        return bool(self._host.vllm_mode == "colocate" and self._host.vllm_tensor_parallel_size > 1)


class _DoNotStackError(Exception):
    """Rows do not make a batch; raised before the model has been called."""


def _collating(collate: Callable[..., Any]) -> Callable[..., Any]:
    def collated(*args: Any, **kwargs: Any) -> Any:
        try:
            return collate(*args, **kwargs)
        except RuntimeError as error:
            raise _DoNotStackError from error

    return collated


def check_media(sample: VisionSample) -> None:
    """Compare the tags in a trajectory with its media; most templates train on a tag too many as text.

    Raises:
        RolloutError: They differ in number.
    """
    counts = {medium: len(getattr(sample, f"{medium}s") or ()) for medium in text.MEDIA}
    roles = [message["role"] for message in sample.messages]
    of_text = "assistant" in roles and not any(counts.values())
    asked = roles.index("assistant") if of_text else 0  # a row without media may spell tags
    try:
        text.check_tags(None, sample.messages[asked:], counts)
    except DatasetRowError as error:
        raise RolloutError(
            f"after the rollout a row has {error.what}",
            where=f"--multi_turn_scheduler, {error.where}",
            fix="its step returns {'rollout_infos': {'images': [...]}}, an image for each tag of the row",
        ) from None


def completions_per_request(requests: Sequence[RolloutInferRequest | Row], workers: int = 1) -> int:
    """How many completions each request can ask for, so that equal neighbours are one request; 1 at worst.

    Groups are cut evenly, and requests into equal shares of the engines (``workers``), none with less to do.
    """
    most = gcd(*(len(list(equal)) for _, equal in groupby(map(_content, requests))))
    sizes = (size for size in range(most, 1, -1) if most % size == 0)
    return next((size for size in sizes if len(requests) // size % workers == 0), 1)


def one_by_one(outputs: Sequence[RolloutOutput], size: int) -> list[RolloutOutput]:
    """Answers with ``size`` choices each as answers with one each, in order.

    Raises:
        RolloutError: An answer has another number of choices.
    """
    answers = []
    for output in outputs:
        response = getattr(output, "response", output)
        if len(response.choices) != size:
            raise RolloutError(
                f"the engine gave {len(response.choices)} completions of a prompt, asked for {size}",
                where="a request of several completions",
                fix="SWIFT_GRPO_EXT_DISABLE=trainer.shared_prefill sends one request for each completion",
            )
        for choice in sorted(response.choices, key=lambda choice: choice.index):
            single = replace(response, choices=[replace(choice, index=0)])
            if choice.token_ids is not None:
                usage = response.usage
                sampled = len(choice.token_ids)
                total = usage.prompt_tokens + sampled
                single.usage = replace(usage, completion_tokens=sampled, total_tokens=total)
            answers.append(single if output is response else output.model_copy(update={"response": single}))
    return answers


@contextmanager
def seeds_apart(engine: InferEngine, size: int) -> Iterator[None]:
    """Give every completion the seed that it has when each is a request.

    ms-swift counts seeds up by one for each request, and vLLM from there for each completion of it.
    """
    prepare = engine._prepare_generation_config
    requests = 0  # prepared so far

    def prepared(request_config: RequestConfig | None) -> SamplingParams:
        nonlocal requests
        config = prepare(request_config)
        if config.seed is not None:
            config.seed += requests * (size - 1)
        requests += 1
        return config

    with swapped(engine, "_prepare_generation_config", prepared):
        yield


def agree(digest: str, group: dist.ProcessGroup | None) -> None:
    """Compare the requests of the ranks that share an engine; a collective of ``group``.

    Raises:
        RolloutError: They differ, on every rank of the group, with the ranks that agree with each other.
    """
    digests: list[str] = [""] * dist.get_world_size(group)
    dist.all_gather_object(digests, digest, group=group)
    sides: dict[str, list[int]] = {}
    for rank, of_rank in zip(dist.get_process_group_ranks(group), digests, strict=True):
        sides.setdefault(of_rank, []).append(rank)
    if len(sides) > 1:
        raise RolloutError(
            f"ranks of one tensor-parallel group hold different requests: {sorted(sides.values())}",
            where="vllm_tensor_parallel_size, before generation, where their collectives would hang",
            fix="give all ranks the same dataset files and image folders, and the same request settings, or "
            f"--vllm_tensor_parallel_size 1 ({DEFECTS['A9'].reports[0]})",
        )


def request_digest(
    requests: Sequence[RolloutInferRequest | Row], request_config: RequestConfig | None = None
) -> str:
    """Digest of requests and sampling settings, equal for equal content; random ids do not count."""
    named = [[*map(_content, requests)], request_config and vars(request_config)]
    return content_key(json.dumps(named, sort_keys=True, default=key_of_value).encode())


def _content(request: RolloutInferRequest | Row) -> Row:
    """Fields of a request, without the random id."""
    return {**(request if isinstance(request, dict) else vars(request)), "uuid": None}


def resampled(host: Host, samples: Samples, rewards_per_func: Rewards) -> tuple[Samples, Rewards]:
    """This rank's samples, and all ranks' rewards, of groups that can be compared, if enough are found."""
    uneven = [host.dynamic_num_samples]  # of each batch: a server may return more than it was asked for

    def fresh() -> tuple[Samples, Rewards]:
        drawn = host._rollout_samples(next(host.dynamic_resample_iterator))
        rewards = host._compute_rewards_per_func(drawn)
        uneven.append(host.dynamic_num_samples)
        return drawn, rewards

    def differing(samples: Samples, rewards: Rewards) -> tuple[Samples, Rewards]:
        differ = host.compute_std(samples, rewards) > 0
        return list(compress(gather_object(samples), differ.tolist())), rewards[differ]

    kept = enough(host, (samples, rewards_per_func), fresh, differing)
    host.dynamic_num_samples = any(uneven) if kept else uneven[0]
    return (get_even_process_data(host, kept[0]), kept[1]) if kept else (samples, rewards_per_func)


def enough(
    host: Any,
    batch: tuple[Samples, Rewards],
    fresh: Callable[[], tuple[Samples, Rewards]],
    differing: Callable[[Samples, Rewards], tuple[Samples, Rewards]],
) -> tuple[Samples, Rewards] | None:
    """A generation batch of all ranks' samples and rewards of ``differing`` groups; None if there are fewer.

    Groups of equal rewards give way to others (DAPO, arXiv 2503.14476), which ``fresh`` draws. ms-swift's
    loop ends with a new batch that it never looks at, so ``--max_resample_times 1`` never helps. Here each of
    the new batches counts.
    """
    size = host.args.generation_batch_size
    kept: list[VisionSample] = []
    rewards: list[Rewards] = []
    for new in range(host.max_resample_times + 1):
        chosen, chosen_rewards = differing(*(fresh() if new else batch))
        kept += chosen
        rewards.append(chosen_rewards)
        if len(kept) >= size:
            return kept[:size], torch.cat(rewards)[:size]
    get_logger().warning(
        f"swift-grpo-ext: {len(kept)} of {size} completions are in groups whose rewards differ, after "
        f"{host.max_resample_times} new batches (max_resample_times): the step takes the first batch"
    )
    return None
