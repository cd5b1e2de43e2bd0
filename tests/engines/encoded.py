"""A plugin for the tests: writes down how many images a vLLM in this process encodes, by call of the engine.

``encoded.jsonl`` in the folder ``RECORD`` has a row for each call.
"""

import json
import os
from pathlib import Path

from swift.infer_engine import GRPOVllmEngine
from vllm.v1.core.sched.scheduler import Scheduler

infer, schedule = GRPOVllmEngine.infer, Scheduler.schedule
encoded = 0


def schedule_and_count(self, *args, **kwargs):
    global encoded
    output = schedule(self, *args, **kwargs)
    encoded += sum(map(len, output.scheduled_encoder_inputs.values()))
    return output


def infer_and_write(self, *args, **kwargs):
    global encoded
    encoded = 0
    outputs = infer(self, *args, **kwargs)
    with open(Path(os.environ["RECORD"]) / "encoded.jsonl", "a") as file:
        file.write(json.dumps({"images": encoded}) + "\n")
    return outputs


GRPOVllmEngine.infer = infer_and_write
Scheduler.schedule = schedule_and_count
