"""F20: a video given as a list of frames ends every GRPO run: the rollout request accepts only paths."""

from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import patch


def probe() -> bool:
    """True if a request cannot hold a list of frames."""
    from dacite.exceptions import WrongTypeError
    from swift.rl_core.data import OnPolicySample

    sample = OnPolicySample(messages=[{"role": "user", "content": "<video>"}], videos=[["0.png"]])
    try:
        sample.to_infer_request()
    except WrongTypeError:
        return True
    return False


@patch(
    "F20",
    "swift.rl_core.data:OnPolicySample.to_infer_request",
    fingerprint="self, include_extra=",
    probe=probe,
    remove_when="RolloutInferRequest takes lists of frames",
)
def fix(to_infer_request: Callable[..., Any], sample: Any, include_extra: bool = False) -> object:
    """Build the request without its videos and add them afterwards: nothing downstream requires paths."""
    videos = sample.videos
    sample.videos = []
    try:
        request = to_infer_request(sample, include_extra)
    finally:
        sample.videos = videos
    request.videos = list(videos) if isinstance(videos, (list, tuple)) else [videos] if videos else []
    return request
