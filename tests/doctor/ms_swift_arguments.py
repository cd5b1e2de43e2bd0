"""Makes ms-swift's own RLHFArguments of command lines, one JSON object a line: {"words": [...], "environ": {...}}.

Prints for each a line: empty, or what ms-swift raised. No model is loaded and no data; instead of the other ranks
stands torch's fake process group, instead of a rollout server nothing at all, and instead of a GPU the CPU.
"""

import json
import os
import sys

import torch.distributed as dist
from accelerate.state import AcceleratorState
from swift.arguments import RLHFArguments
from swift.utils import parse_args
from torch.testing._internal.distributed.fake_pg import FakeStore


def refusal(words: list[str], environ: dict[str, str]) -> str:
    before = dict(os.environ)
    ranks = int(environ["NPROC_PER_NODE"])
    world = ranks * int(environ.get("NNODES", "1"))
    os.environ.update(environ | {"RANK": "0", "LOCAL_RANK": "0"})
    os.environ.update({"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(ranks)})
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        arguments, rest = parse_args(RLHFArguments, [*words, "--use_cpu", "true"])
        assert arguments.training_args.world_size == world
        return f"left over: {rest}" if rest else ""
    except Exception as error:  # whatever it raises is what this says
        return f"{type(error).__name__}: {error}"[:400]
    finally:
        dist.destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)
        os.environ.clear()
        os.environ.update(before)


RLHFArguments._init_external_vllm = lambda self: None  # the client waits for a server
out, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    print(json.dumps(refusal(**json.loads(line))), file=out, flush=True)
