"""Tests of parts of the Megatron room, in a process of its environment: see test_inside.py."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cpu_as_cuda  # noqa: F401  (before Megatron is imported)
import pytest
import torch.distributed as dist


@pytest.fixture(scope="session", autouse=True)
def one_rank():
    """Megatron's groups of one rank."""
    from megatron.core import mpu

    os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"})
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    mpu.initialize_model_parallel()
    yield
    mpu.destroy_model_parallel()
    dist.destroy_process_group()


@pytest.fixture
def said():
    """Everything that ms-swift's logger said."""
    from tests.trainer.runs import told

    with told() as lines:
        yield lines
