"""A video may be a list of its frames, as in SFT."""

from swift.rl_core.data import OnPolicySample


def test_a_request_takes_frames():
    messages = [{"role": "user", "content": "<video><video>"}]
    sample = OnPolicySample(messages=messages, videos=[["0.png", "1.png"], "2.mp4"])
    assert sample.to_infer_request().videos == [["0.png", "1.png"], "2.mp4"]
