"""A judge, or a server before it, that is slow, down, rude or broken."""

import pytest

from swift_grpo_ext.rewards.runtime import judge_client as judging
from tests.rewards.asked_judge import batch, one
from tests.rewards.loopback_judge import LoopbackJudge, always, chat, scored, text_in

pytestmark = pytest.mark.usefixtures("fresh_judge")


def test_a_judge_that_is_too_slow_costs_its_limit():
    with LoopbackJudge(always(5), delay=30) as server:
        (score,), report, seconds = batch(["a dog"], url=server.url, seconds=0.5)
    assert score is None
    assert 0.5 <= seconds < 30
    assert (report.failures, report.timeouts) == (1, 1)
    assert "the judge gave no score within 0.5 s" in report.first.what
    assert report.first.row.startswith("completion 0 of the batch")


def test_errors_of_the_server_are_repeated():
    replies = [(500, "down"), (429, "slow down"), (503, "down")]
    score, report, _, server = one(
        lambda number, request: replies.pop() if replies else (200, scored(number, 4))
    )
    assert score == 0.4
    assert len(server.requests) == 4
    assert report.failures == 0


def test_a_server_that_stays_down_is_given_up_with_what_it_said():
    score, report, seconds, server = one(lambda *_: (500, "out of memory"))
    assert score is None
    assert seconds < 60
    assert len(server.requests) == 1 + judging.MAX_RETRIES
    assert "status 500, 'out of memory'" in report.first.what


def test_no_server_at_all():
    with LoopbackJudge(always(5)) as server:
        pass
    (score,), report, seconds = batch(["a dog"], url=server.url)
    assert score is None
    assert seconds < 60
    assert "All connection attempts failed" in report.first.what


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refused_request_is_not_repeated(status):
    score, report, seconds, server = one(lambda *_: (status, "no"))
    assert score is None
    assert len(server.requests) == 1
    assert seconds < 60
    assert f"the judge answers with status {status}, 'no'" in report.first.what


@pytest.mark.parametrize(
    "body",
    [
        "<!doctype html><html><body>502 Bad Gateway, score: 10</body></html>",
        "",
        "[" * 100_000,
        "{}",
        '{"choices": []}',
        '{"choices": [{"message": {"content": null}}]}',
        '{"choices": [{"message": {"content": [{"type": "text"}]}}]}',
        "\x00\ud7ff",
        chat("I give it a 9 of 10."),
        chat("Score: 10"),
        chat('{"score": 10}'),
        chat('{"number": "0123456789abcdef", "score": 10}'),
        chat('{"number": null, "score": 10}'),
    ],
)
def test_a_reply_in_another_form_is_no_score(body):
    score, report, seconds, server = one(lambda *_: (200, body))
    assert score is None
    assert len(server.requests) == judging.MAX_REPLIES
    assert seconds < 60
    assert report.failures == 1
    assert "the judge gave no score in 4 replies" in report.first.what


@pytest.mark.parametrize("score", [11, -1, 3.5, 1e308, "10", True, None, [10], float("nan")])
def test_a_score_out_of_range_is_no_score(score):
    found, report, _, _ = one(lambda number, request: (200, scored(number, score)))
    assert found is None
    assert report.failures == 1


def test_after_a_bad_reply_the_judge_is_asked_again():
    replies = ["hm", "<html>"]
    found, *_ = one(lambda number, _: (200, chat(replies.pop()) if replies else scored(number, 6)))
    assert found == 0.6


def test_one_failure_does_not_hold_up_the_others():
    def reply(number, request):
        return (400, "no") if "dog 3" in text_in(request) else (200, scored(number, 5))

    with LoopbackJudge(reply) as server:
        scores, report, _ = batch([f"dog {number}" for number in range(8)], url=server.url)
    assert scores == [0.5] * 3 + [None] + [0.5] * 4
    assert report.failures == 1
    assert report.first.row.startswith("completion 3 of the batch")


def test_a_redirection_is_not_followed():
    with LoopbackJudge(always(10)) as elsewhere:
        score, report, _, _ = one(lambda *_: (307, "", {"Location": f"{elsewhere.url}/chat/completions"}))
    assert score is None
    assert elsewhere.requests == []
    assert "status 307" in report.first.what


def test_a_body_in_pieces_is_read_to_its_end():
    def reply(number, _):
        body = scored(number, 8)
        return 200, [body[:10], body[10:60], body[60:]]

    assert one(reply)[0] == 0.8


def test_waiting_in_the_queue_is_no_timeout():
    with LoopbackJudge(always(5), delay=0.4) as server:
        scores, report, _ = batch([f"dog {n}" for n in range(8)], url=server.url, concurrency=1, seconds=3)
    assert scores == [0.5] * 8
    assert report.timeouts == 0
