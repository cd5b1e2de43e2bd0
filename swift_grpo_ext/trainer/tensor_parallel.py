"""Ranks of a tensor-parallel group agree on what they are about to generate, and on fresh seeds for it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import torch.distributed as dist

from swift_grpo_ext.errors import RolloutError

TENSOR_PARALLEL = "https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html"


def seed_of(run: int, generation: int, group: int) -> int:
    """A seed below 2 ** 31 for one generation by one tensor-parallel group; its requests count on from it."""
    return random.Random(f"{run} {generation} {group}").getrandbits(31)


def agree(digest: str, group: object) -> None:
    """Raise on every rank of a group unless all of them hold the same digest.

    Raises RolloutError: Names the ranks on each side.
    """
    digests: list[str] = [""] * dist.get_world_size(group)
    dist.all_gather_object(digests, digest, group=group)
    sides: dict[str, list[int]] = {}
    for rank, held in zip(dist.get_process_group_ranks(group), digests, strict=True):
        sides.setdefault(held, []).append(rank)
    if len(sides) > 1:
        raise RolloutError(
            f"ranks of one tensor-parallel group hold different requests: {sorted(sides.values())}",
            where="vllm_tensor_parallel_size, before generation, where their collectives would hang",
            fix="give all ranks the same dataset files and image folders, and the same request settings, or "
            f"--vllm_tensor_parallel_size 1 ({TENSOR_PARALLEL})",
        )


def request_digest(requests: Sequence[object], request_config: object = None) -> str:
    """Digest of requests and their sampling settings; the same content gives the same digest anywhere.

    Ids of requests are left out: they are drawn at random by each rank.
    """
    plain = [_plain(request) for request in requests]
    for request in plain:
        if isinstance(request, dict):
            request.pop("uuid", None)
    text = json.dumps([plain, _plain(request_config)], sort_keys=True, default=_bytes_digest)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _bytes_digest(value: object) -> str:
    """For what JSON has no word for: images by their pixels, bytes, and anything else by its text."""
    raw = value if isinstance(value, bytes) else value.tobytes() if hasattr(value, "tobytes") else None
    return hashlib.sha256(raw).hexdigest() if raw is not None else repr(value)
