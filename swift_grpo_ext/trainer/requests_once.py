"""Rollouts by vLLM: a prompt and its images are handed over once for the completions of their group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from math import gcd
from typing import TYPE_CHECKING

from swift_grpo_ext.errors import RolloutError
from swift_grpo_ext.swap import swapped

if TYPE_CHECKING:
    from swift.infer_engine import InferEngine
    from swift.infer_engine.protocol import RolloutOutput
    from vllm import SamplingParams


def completions_per_request(requests: Sequence[object], workers: int = 1) -> int:
    """How many completions each request can ask for, so that equal neighbours are one request.

    Args:
        requests: One for each completion, in order; ids apart, those of a group are equal.
        workers: Engines that the requests are dealt to, which must not have less to do than before.

    Returns:
        The largest number that cuts every group, and all requests into equal shares of the workers; 1 at
        worst.
    """
    contents = [{**(one if isinstance(one, dict) else vars(one)), "uuid": None} for one in requests]
    most = gcd(*(len(list(equal)) for _, equal in groupby(contents)))
    sizes = (size for size in range(most, 1, -1) if most % size == 0)
    return next((size for size in sizes if len(requests) // size % workers == 0), 1)


def one_by_one(outputs: Sequence[RolloutOutput], size: int) -> list[object]:
    """Answers with several choices each as answers with one each, in order.

    Raises RolloutError: An engine answered with another number of choices than it was asked for.
    """
    found = []
    for output in outputs:
        response = getattr(output, "response", output)
        if len(response.choices) != size:
            raise RolloutError(
                f"the engine gave {len(response.choices)} completions of a prompt, asked for {size}",
                where="a request of several completions",
                fix="SWIFT_GRPO_EXT_DISABLE=trainer.shared_prefill asks for each by itself",
            )
        for choice in sorted(response.choices, key=lambda choice: choice.index):
            single = replace(response, choices=[replace(choice, index=0)])
            if choice.token_ids is not None:
                prompt, sampled = response.usage.prompt_tokens, len(choice.token_ids)
                single.usage = replace(
                    response.usage, completion_tokens=sampled, total_tokens=prompt + sampled
                )
            found.append(single if output is response else output.model_copy(update={"response": single}))
    return found


@contextmanager
def seeds_apart(engine: InferEngine, size: int) -> Iterator[None]:
    """Give every completion the seed that it has when each is a request.

    ms-swift counts seeds up by one for each request, and vLLM from there for each completion of it.
    """
    prepare, asked = engine._prepare_generation_config, 0

    def prepared(request_config: object) -> SamplingParams:
        nonlocal asked
        config = prepare(request_config)
        if config.seed is not None:
            config.seed += asked * (size - 1)
        asked += 1
        return config

    with swapped(engine, "_prepare_generation_config", prepared):
        yield
