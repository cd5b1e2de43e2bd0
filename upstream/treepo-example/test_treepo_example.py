"""ms-swift's example of a tree search is imported, asks about each image, and is as deep as it is told."""

import asyncio
import importlib
import os
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RequestConfig,
    RolloutInferRequest,
    UsageInfo,
)

FOLDER = "examples/train/grpo/plugin/treepo"
ROOTS = [Path(root) for root in (*sys.path, os.environ.get("MS_SWIFT", "")) if root]
FOUND = [root / FOLDER for root in ROOTS if (root / FOLDER).is_dir()]
pytestmark = pytest.mark.skipif(not FOUND, reason="no wheel has the example: MS_SWIFT=a checkout of ms-swift")


class Engine:
    """Answers everything with two tokens, and keeps what it is asked."""

    def __init__(self):
        self.requests = []

    async def infer_async(self, request, config):
        self.requests.append(deepcopy(request))
        logprobs = {"content": [{"logprob": -0.5}, {"logprob": -1.0}]}
        choice = ChatCompletionResponseChoice(0, ChatMessage("assistant", "seven"), "stop", logprobs, [5, 6])
        return ChatCompletionResponse("model", [choice], UsageInfo(0, 0, 0))

    async def _batch_infer_stream(self, tasks, *_):
        return await asyncio.gather(*tasks)


@pytest.fixture
def search(monkeypatch):
    """Leaves of eight requests for each image, which ask the same, and what the engine was asked."""
    monkeypatch.syspath_prepend(str(FOUND[0]))
    for name in ("tree_rollout", "tree_rollout_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    plugin = importlib.import_module("tree_rollout_plugin")

    def search(images, max_turns):
        engine = Engine()
        question = [{"role": "user", "content": "<image>Which digit?"}]
        requests = [
            RolloutInferRequest(question, images=[images[row // 8]], uuid=str(row))
            for row in range(8 * len(images))
        ]
        scheduler = plugin.TreeRolloutScheduler(engine, max_turns)
        return asyncio.run(scheduler.async_infer(requests, RequestConfig(), use_tqdm=False)), engine.requests

    return search


def test_every_image_is_searched(search):
    leaves, requests = search(["one.png", "two.png"], max_turns=3)
    assert [leaf.rollout_infos["images"] for leaf in leaves] == [["one.png"]] * 8 + [["two.png"]] * 8
    assert [leaf.response.id for leaf in leaves] == [str(row) for row in range(16)]
    assert {tuple(request.images) for request in requests} == {("one.png",), ("two.png",)}


def test_a_search_is_as_deep_as_it_is_told(search):
    leaves, _ = search(["one.png"], max_turns=3)
    assert len(leaves[0].response_token_ids) == 3  # those after it may have gone back a turn, and on again
