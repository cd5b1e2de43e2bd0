"""One request for the completions of a prompt: which are one, and how their answers come apart again."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RequestConfig,
    RolloutInferRequest,
    RolloutOutput,
    UsageInfo,
)

from swift_grpo_ext.errors import RolloutError
from swift_grpo_ext.trainer.rollout import Rollout, completions_per_request, one_by_one, seeds_apart


def requests(*groups, image="aGVsbG8="):
    return [
        RolloutInferRequest(
            messages=[{"role": "user", "content": f"<image>{number}"}], images=[image], uuid=f"{number}-{one}"
        )
        for number, size in enumerate(groups)
        for one in range(size)
    ]


def answers(*texts_of_requests):
    """The second completion first: engines need not keep their order."""
    return [
        RolloutOutput(
            response=ChatCompletionResponse(
                "m",
                [
                    ChatCompletionResponseChoice(
                        index, ChatMessage("assistant", text), "stop", token_ids=list(range(len(text)))
                    )
                    for index, text in sorted(enumerate(texts), reverse=True)
                ],
                UsageInfo(7, 99, 106),
                prompt_token_ids=[1, 2],
            )
        )
        for texts in texts_of_requests
    ]


@pytest.mark.parametrize(
    ("groups", "workers", "size"),
    [
        ((4, 4), 1, 4),
        ((4, 4), 2, 4),
        ((4, 4), 4, 2),
        ((4, 4), 8, 1),
        ((8,), 3, 1),
        ((4, 6), 1, 2),
        ((1, 1, 1), 1, 1),
        ((4, 3), 1, 1),
    ],
)
def test_equal_neighbours_are_one_request_and_no_worker_idles(groups, workers, size):
    assert completions_per_request(requests(*groups), workers) == size


def test_another_image_is_another_request():
    assert completions_per_request([*requests(2), *requests(2, image="d29ybGQ=")]) == 2
    assert completions_per_request([*requests(1), *requests(1, image="d29ybGQ=")]) == 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 4))
def test_requests_and_answers_come_out_even(groups, workers):
    asked = requests(*groups)
    size = completions_per_request(asked, workers)
    kept = asked[::size]
    assert [one.messages for one in asked] == [one.messages for one in kept for _ in range(size)]
    texts = [[f"{number} {one}" for one in range(size)] for number in range(len(kept))]
    found = one_by_one(answers(*texts), size)
    assert [one.response.choices[0].message.content for one in found] == [
        text for row in texts for text in row
    ]


def test_each_answer_is_as_if_asked_for_alone():
    first, second = one_by_one(answers(["abc", "de"]), 2)
    assert (first.response.choices[0].index, second.response.choices[0].index) == (0, 0)
    assert first.response.usage == UsageInfo(7, 3, 10)
    assert second.response.usage == UsageInfo(7, 2, 9)
    assert second.response.prompt_token_ids == [1, 2]


def test_an_engine_that_gives_another_number_is_named():
    with pytest.raises(RolloutError, match="gave 1 completions of a prompt, asked for 2"):
        one_by_one(answers(["abc"]), 2)


def test_seeds_are_those_of_requests_of_one_completion():
    class Engine:
        def _prepare_generation_config(self, config):
            return SimpleNamespace(seed=config.seed)

    engine, seeds = Engine(), []
    with seeds_apart(engine, 4):
        for request in range(3):
            seed = engine._prepare_generation_config(SimpleNamespace(seed=100)).seed + request  # ms-swift
            seeds += [seed + child for child in range(4)]  # vLLM
    assert seeds == list(range(100, 112))
    assert "_prepare_generation_config" not in vars(engine)


@pytest.mark.parametrize("config", [RequestConfig(n=2), RequestConfig(temperature=0), None])
def test_who_is_asked_for_each_by_itself(config):
    rollout = Rollout(SimpleNamespace(vllm_mode="colocate", engine=None))
    given_requests = requests(4)
    assert rollout.ask(given_requests, config, lambda *asked: asked) == (given_requests, config)
