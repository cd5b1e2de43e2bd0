"""F27: the gradient of a log-prob over a vocabulary that two ranks share."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from swift_grpo_ext.compat import vocabulary_gradient
from swift_grpo_ext.testing.run import free_port

LOGITS = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
TOKENS = torch.tensor([0, 3, 4, 7, 2])


def log_softmax_of_4_5_2(logits):
    """The arithmetic of ms-swift 4.5.2: sums that autograd does not see."""
    highest = logits.max(dim=-1, keepdim=True)[0]
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    total = torch.exp(logits - highest).sum(dim=-1, keepdim=True)
    dist.all_reduce(total)
    return logits - highest - torch.log(total)


def gradient_of(log_softmax, rank):
    shard = LOGITS.chunk(2, dim=-1)[rank].clone().requires_grad_()
    rows = log_softmax(shard)
    mine = rank == (TOKENS // 4)
    (rows.gather(1, (TOKENS % 4)[:, None])[:, 0] * mine).sum().backward()
    return shard.grad


def gradients(rank, port, path):
    """Both gradients of this rank's shard, into a file."""
    parallel = SimpleNamespace(
        get_tensor_model_parallel_world_size=lambda: 2,
        get_tensor_model_parallel_group=lambda: dist.group.WORLD,
    )
    core = ModuleType("megatron.core")
    core.mpu = parallel
    sys.modules.update({"megatron": ModuleType("megatron"), "megatron.core": core})
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    fixed = vocabulary_gradient.fix.fix(log_softmax_of_4_5_2)
    torch.save([gradient_of(log_softmax_of_4_5_2, rank), gradient_of(fixed, rank)], f"{path}{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads drop tensors while an interpreter is torn down, which aborts it (F25)


@pytest.mark.two_ranks
def test_each_rank_has_the_whole_gradient_of_its_shard(tmp_path):
    processes.spawn(gradients, (free_port(), str(tmp_path / "rank")), nprocs=2)
    saved = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    before, after = (torch.cat(shards, dim=-1) for shards in zip(*saved, strict=True))
    logits = LOGITS.clone().requires_grad_()
    logits.log_softmax(dim=-1).gather(1, TOKENS[:, None]).sum().backward()
    assert torch.allclose(after, logits.grad, atol=1e-6)
    assert (before - logits.grad).abs().max() > 0.1
