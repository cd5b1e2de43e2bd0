"""A plugin for the tests: works around what vLLM on a CPU cannot do, and a run with it needs.

- vLLM's CPU linear layers repack their weights and drop the parameters that a sync writes to. Here they keep
  them and use torch's own product.
- The rollout server counts GPUs before it starts. Here it does not.
- Server and trainer exchange weights through NCCL. Here they use the store that they have opened already.
"""

from typing import Any

import torch
from swift.arguments import RolloutArguments
from swift.pipelines.infer import rollout
from swift.rlhf_trainers import vllm_client
from vllm.model_executor.layers import utils


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


class StoreCommunicator:
    """Broadcasts tensors through the key-value store of vLLM's stateless process group."""

    def __init__(self, group: Any, device: Any) -> None:
        self.group, self.rank, self.device = group, group.rank, torch.device("cpu")

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        sent = self.group.broadcast(tensor, src)
        if self.rank != src:
            tensor.copy_(sent)


def broadcast_one(communicator: StoreCommunicator, tensor: torch.Tensor, src: int) -> None:
    communicator.broadcast(tensor, src)


def broadcast_all(communicator: StoreCommunicator, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        communicator.broadcast(tensor.detach(), communicator.rank)


utils.dispatch_cpu_unquantized_gemm = keep_weights
RolloutArguments._check_device_count = lambda self: None
rollout.PyNcclCommunicator = vllm_client.PyNcclCommunicator = StoreCommunicator
rollout.broadcast_tensor_for_vllm_weight_sync = broadcast_one
rollout.synchronize = lambda: None  # the host's asks CUDA when there is no other accelerator
vllm_client._broadcast_tensors_for_vllm_weight_sync = broadcast_all
