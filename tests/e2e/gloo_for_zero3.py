"""A plugin that starts DeepSpeed's process group before the model is loaded.

On a GPU ms-swift does it; with --use_cpu ZeRO-3 would shard the model for a world of one rank.
"""

import os

import deepspeed

if "RANK" in os.environ:
    deepspeed.init_distributed("gloo")
