"""Asks ext_judge about completions of one row."""

import asyncio
import time

from swift_grpo_ext.rewards.judge import judge
from swift_grpo_ext.rewards.runtime import judge_client as judging
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.ledger import drain
from swift_grpo_ext.rewards.runtime.of_catalogue import AwaitedOfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from tests.rewards.loopback_judge import LoopbackJudge

ROW = {"messages": [{"role": "user", "content": "<image>What is it?"}], "solution": "a cat"}


def batch(completions, **parameters):
    """Scores of a batch, its report, and the seconds it took."""
    table = RewardTable.model_validate(
        {"rewards": {"ext_judge": {"parameters": {"model": "m", **parameters}}}}
    )
    rows = Batch.of(completions, {name: [value] * len(completions) for name, value in ROW.items()})
    started = time.monotonic()
    scores = asyncio.run(AwaitedOfCatalogue(judge, None, table).scored(rows))
    return scores, drain(judging.NAME), time.monotonic() - started


def one(reply, completion="a dog", **parameters):
    with LoopbackJudge(reply) as server:
        (score,), report, seconds = batch([completion], url=server.url, **parameters)
    return score, report, seconds, server
