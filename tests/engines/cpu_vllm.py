"""A plugin for the tests: works around what vLLM on a CPU cannot do, and a run with it needs.

- vLLM's CPU linear layers repack their weights and drop the parameters that a sync writes to. Here they keep
  them and use torch's own product.
- Its experts and convolutions of gated delta nets repack theirs in place, once, and a sync writes plain ones
  over them. Here they stay plain, and are packed at each call.
- The rollout server counts GPUs before it starts. Here it does not.
- Server and trainer exchange weights through NCCL; without it, a broadcast of vLLM's communicator does nothing,
  and the server waits for ever. Here it goes through the store that both have opened already. The methods are
  replaced, not the class: the trainer has made its communicator before it imports plugins.
"""

from collections.abc import Callable
from typing import Any

import torch
from swift.arguments import RolloutArguments
from swift.pipelines.infer import rollout
from swift.rlhf_trainers import vllm_client
from vllm._custom_ops import causal_conv1d_weight_pack
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.fused_moe.experts import cpu_moe
from vllm.model_executor.layers.mamba.ops.cpu import gdn_attention

PART = 2**20  # bytes: a store is made for small values


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


pack_experts, run_experts = cpu_moe.cpu_prepack_moe_weight, cpu_moe.cpu_fused_moe


def experts(
    out: torch.Tensor, rows: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *rest: Any
) -> None:
    *_, isa, _ = rest
    run_experts(out, rows, pack_experts(first, isa), pack_experts(second, isa), *rest)


def packed(convolution: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def run(*, weight: torch.Tensor, **rest: Any) -> torch.Tensor:
        """``weight`` is ``(channels, 1, width)``."""
        return convolution(weight=causal_conv1d_weight_pack(weight[:, 0].contiguous()), **rest)

    return run


def broadcast(self: PyNcclCommunicator, tensor: torch.Tensor, src: int, stream: Any = None) -> None:
    for part in tensor.view(-1).view(torch.uint8).split(PART):
        sent = self.group.broadcast(part.clone(), src)  # a view would be sent with all of its storage
        if self.rank != src:
            part.copy_(sent)


def broadcast_one(communicator: PyNcclCommunicator, tensor: torch.Tensor, src: int) -> None:
    communicator.broadcast(tensor, src)


def broadcast_all(communicator: PyNcclCommunicator, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        communicator.broadcast(tensor.detach(), communicator.rank)


utils.dispatch_cpu_unquantized_gemm = keep_weights
cpu_moe.cpu_prepack_moe_weight = lambda weight, isa: weight
cpu_moe.cpu_fused_moe = experts
for name in ("_causal_conv1d_fwd_cpu", "_causal_conv1d_update_cpu"):
    setattr(gdn_attention, name, packed(getattr(gdn_attention, name)))
RolloutArguments._check_device_count = lambda self: None
PyNcclCommunicator.device = torch.device("cpu")
PyNcclCommunicator.broadcast = broadcast
rollout.broadcast_tensor_for_vllm_weight_sync = broadcast_one
rollout.synchronize = lambda: None  # the host's asks CUDA when there is no other accelerator
vllm_client._broadcast_tensors_for_vllm_weight_sync = broadcast_all
