"""A plugin for the tests: writes down what an engine was asked for, and what the trainer got.

In the folder ``RECORD``: ``asked.jsonl`` has a row for each call of the engine (requests, completions of each,
seconds in ms-swift's encoding and in vLLM's own preparation), ``sent.jsonl`` the bytes of each POST of requests,
``answers.jsonl`` the sampled tokens as the trainer gets them, in order.
"""

import json
import os
import time
from pathlib import Path

import requests
from swift.infer_engine import GRPOVllmEngine

from swift_grpo_ext.trainer.grpo import GRPOTrainer

infer, encode, add = GRPOVllmEngine.infer, GRPOVllmEngine._batch_encode, GRPOVllmEngine._add_request
asked_ours, post = GRPOTrainer._engine_infer, requests.Session.post
spent = {"encode": 0.0, "prepare": 0.0}


def write(table, row):
    with open(Path(os.environ["RECORD"]) / f"{table}.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def timed(name, function):
    def run(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] += time.perf_counter() - start

    return run


def infer_and_count(self, infer_requests, request_config=None, *args, **kwargs):
    spent.update(encode=0.0, prepare=0.0)
    found = infer(self, infer_requests, request_config, *args, **kwargs)
    write("asked", {"requests": len(infer_requests), "n": request_config.n, **spent})
    return found


def post_and_count(self, url, *args, **kwargs):
    if url.endswith("/infer/"):
        body = kwargs["json"]
        row = {"requests": len(body["infer_requests"]), "n": body["request_config"]["n"]}
        write("sent", {**row, "bytes": len(json.dumps(body))})
    return post(self, url, *args, **kwargs)


def ask_and_keep(self, infer_requests, request_config=None, **kwargs):
    found = asked_ours(self, infer_requests, request_config, **kwargs)
    for output in found:
        (choice,) = output.response.choices
        usage = output.response.usage
        write("answers", {"tokens": choice.token_ids, "index": choice.index, "used": usage.completion_tokens})
    return found


GRPOVllmEngine.infer = infer_and_count
GRPOVllmEngine._batch_encode = timed("encode", encode)
GRPOVllmEngine._add_request = timed("prepare", add)
requests.Session.post = post_and_count
GRPOTrainer._engine_infer = ask_and_keep
