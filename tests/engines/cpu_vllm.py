"""A plugin for the tests: works around what vLLM on a CPU cannot do, and a run with it needs.

- vLLM's CPU linear layers repack their weights and drop the parameters that a sync writes to. Here they keep
  them and use torch's own product.
- The rollout server counts GPUs before it starts. Here it does not.
- Server and trainer exchange weights through NCCL; without it, a broadcast of vLLM's communicator does nothing,
  and the server waits for ever. Here it goes through the store that both have opened already. The methods are
  replaced, not the class: the trainer has made its communicator before it imports plugins.
"""

from typing import Any

import torch
from swift.arguments import RolloutArguments
from swift.pipelines.infer import rollout
from swift.rlhf_trainers import vllm_client
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
from vllm.model_executor.layers import utils

PART = 2**20  # bytes: a store is made for small values


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


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
RolloutArguments._check_device_count = lambda self: None
PyNcclCommunicator.device = torch.device("cpu")
PyNcclCommunicator.broadcast = broadcast
rollout.broadcast_tensor_for_vllm_weight_sync = broadcast_one
rollout.synchronize = lambda: None  # the host's asks CUDA when there is no other accelerator
vllm_client._broadcast_tensors_for_vllm_weight_sync = broadcast_all
