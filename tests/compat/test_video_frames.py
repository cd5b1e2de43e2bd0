"""A video that is a list of frames goes through a GRPO run."""

import json

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat import video_frames

PATCH = "F20-video-frames"


@pytest.fixture
def films(digits, tmp_path):
    """Four rows with two frames each."""
    paths = [json.loads(line)["images"][0] for line in digits.train.read_text().splitlines()]
    rows = [
        {
            "messages": [{"role": "user", "content": f"<video>Which digit? {n}"}],
            "videos": [paths[2 * n : 2 * n + 2]],
        }
        for n in range(4)
    ]
    path = tmp_path / "films.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(request, films, tmp_path):
    swift_grpo_ext.register()

    def start(model, **overrides):
        words = testing.grpo_arguments(
            request.getfixturevalue(model),
            films,
            tmp_path / "out",
            reward_funcs="format",
            max_steps=1,
            **overrides,
        )
        testing.run_in_process("rlhf", words)
        return [row for row in testing.read_logging(tmp_path / "out") if "loss" in row]

    return start


def test_before_the_run_ends(run, stock):
    from dacite.exceptions import WrongTypeError

    with pytest.raises(WrongTypeError, match="videos"):
        run("tiny_qwen")


@pytest.mark.parametrize("model", ["tiny_qwen", "tiny_ovis"])
def test_the_run_trains(run, model):
    assert len(run(model)) == 1


def test_a_request_holds_what_the_row_held(prove):
    proof = prove(video_frames.fix)
    proof.drift()
    proof.on()
    from swift.rl_core.data import OnPolicySample

    messages = [{"role": "user", "content": "<video><video>"}]
    sample = OnPolicySample(messages=messages, videos=[["0.png", "1.png"], "2.mp4"], extra={"solution": "1"})
    request = sample.to_infer_request(include_extra=True)
    assert request.videos == sample.videos == [["0.png", "1.png"], "2.mp4"]
    assert request.data_dict == {"solution": "1"}
    assert OnPolicySample(messages=messages).to_infer_request().videos == []
    proof.off()
