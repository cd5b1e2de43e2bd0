"""A plugin for ZeRO-3 on a CPU: DeepSpeed reads the number of ranks before the host has started."""

import deepspeed

deepspeed.init_distributed("gloo")
