"""Shards of the vocabulary, built without initialization: the norm of the gradient must count them."""

import os
import subprocess

from tests.megatron.runs import HERE

SCRIPT = """
import cpu_as_cuda
from types import SimpleNamespace
import torch
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, VocabParallelEmbedding
from swift.megatron.utils import megatron_lm_utils

model = torch.nn.Module()
model.config = None
for name, kind in (("embedding", VocabParallelEmbedding), ("output_layer", ColumnParallelLinear)):
    layer = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    layer.weight = torch.nn.Parameter(torch.zeros(4, 2))
    setattr(model, name, layer)
args = SimpleNamespace(fp16=False, bf16=False, use_megatron_fsdp=False, expert_tensor_parallel_size=1)
megatron_lm_utils.wrap_model(args, [model], wrap_with_ddp=False)
print("counted", *(layer.weight.tensor_model_parallel for layer in model.children()))
"""


def test_shards_are_marked_without_megatron_fsdp(python):
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(HERE)]))
    done = subprocess.run(
        [python, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "counted True True"
