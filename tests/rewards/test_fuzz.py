"""Random bytes, decoded as a tokenizer's output might be, for every reward: no exception, no hang, in range."""

import os
import random
import threading
import time

import pytest

from swift_grpo_ext.rewards.catalogue import NAMES, all_rewards
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from tests.rewards.loopback_judge import LoopbackJudge, always
from tests.rewards.rows import ROWS
from tests.rewards.test_every_reward import FLOODS, PIECES

REWARDS = all_rewards()
FAST = [name for name in NAMES if REWARDS[name].cost == "inline"]
SEED = 20261122
SECONDS = 30.0
"""Of a text of a few thousand characters, on a busy machine too."""


@pytest.fixture(scope="module", autouse=True)
def judge():
    with LoopbackJudge(always(5)) as server:
        yield server


def runner(name, judge):
    parameters = {"url": judge.url, "model": "m"} if name == "ext_judge" else {}
    table = {"rewards": {name: {"parameters": parameters}}}
    return OfCatalogue(REWARDS[name], table=RewardTable.model_validate(table))


def texts(seed, count):
    """Random bytes; random bytes between pieces of answers; pieces of which a few bytes were changed."""
    rng = random.Random(seed)
    for number in range(count):
        raw = rng.randbytes(rng.choice((1, 10, 100, 2000)))
        if number % 3:
            parts = [rng.choice((*PIECES, *FLOODS)) for _ in range(rng.randrange(1, 30))]
            raw = bytearray("".join(parts).encode("utf-8", errors="surrogatepass"))
            for _ in range(rng.randrange(4) if number % 3 == 1 else 0):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        text = bytes(raw).decode(
            "utf-8", errors=("replace", "surrogateescape", "backslashreplace")[number % 5 % 3]
        )
        yield text if number % 2 else f"<think>x</think><answer>{text}</answer>"


def check(name, seed, count):
    reward = REWARDS[name]
    rng = random.Random(seed)
    for text in texts(seed, count):
        row = rng.choice(ROWS[name])
        started = time.process_time()
        score = reward(text, row)
        took = time.process_time() - started
        assert reward.low <= score <= reward.high, (seed, text, row)
        assert took < SECONDS, (seed, took, text, row)


@pytest.mark.parametrize("name", FAST)
def test_random_bytes_are_scored(name):
    check(name, SEED, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_many_random_bytes_are_scored(name):
    check(name, int.from_bytes(os.urandom(8), "big"), 10_000)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FAST])
def test_random_bytes_under_the_pools_limit(name, judge):
    """Through the runtime, as in a run: what hangs is killed at its limit and scores the lowest."""
    import asyncio

    completions = [text for text in texts(SEED, 60) if "**" not in text]
    columns = {key: [value] * len(completions) for key, value in ROWS[name][0].items()}
    scores = asyncio.run(runner(name, judge).scored(Batch.of(completions, columns)))
    assert all(REWARDS[name].low <= score <= REWARDS[name].high for score in scores)


@pytest.mark.parametrize("name", [name for name in FAST if REWARDS[name].gold])
def test_random_gold_is_scored_or_unscored(name):
    reward = REWARDS[name]
    for text in texts(SEED, 60):
        outcome = reward.outcome("<answer>1</answer>", {reward.gold[0]: text})
        if outcome.score is None:
            assert outcome.reason, text
        else:
            assert reward.low <= outcome.score <= reward.high, text


@pytest.mark.parametrize("name", NAMES)
def test_every_reward_works_off_the_main_thread(name, judge):
    """As a trainer might call it whose rollout, and what follows, runs in a thread of its own."""
    import asyncio

    run, row = runner(name, judge), ROWS[name][0]
    columns = {key: [value] * 2 for key, value in row.items()}
    batch = Batch.of(["<think>x</think><answer>1</answer>", "no"], columns)

    def call():
        return asyncio.run(run.scored(batch))

    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(60)
    assert found == [call()]
    assert None not in found[0]
