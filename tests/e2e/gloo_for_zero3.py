"""A plugin that starts DeepSpeed's process group before the model is loaded.

On a GPU ms-swift does it; with --use_cpu ZeRO-3 would shard the model for a world of one rank.
"""

import os

import deepspeed
import torch
from deepspeed.runtime.zero import stage_1_and_2

if "RANK" in os.environ:
    # An all-reduce through shared memory, which DeepSpeed compiles for a minute at its first use: gloo has one.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    # Before 0.19 the weights that ZeRO-2 gathers into want gradients, which gloo refuses and NCCL never asks.
    stage_1_and_2.all_gather_dp_groups = torch.no_grad()(stage_1_and_2.all_gather_dp_groups)
