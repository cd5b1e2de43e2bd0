"""Which of our own figures a step logs: at most 15 in a healthy run, for a tracker draws each of them."""

import re
from collections.abc import Iterable, Mapping

MOST = 15

# What a phase counts as; those that are not named count as the rest.
_PHASES = {
    "data": "prepare",
    "prepare": "prepare",
    "rollout": "rollout",
    "encode": "rollout",
    "weight_sync": "rollout",
    "vision": "vision",
    "reward": "reward",
    "old": "old",
    "reference": "reference",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
}
REST = "rest"
_SECONDS = "seconds/"

_ALWAYS = (
    "watch/moved",
    "watch/master_moved",
    "watch/advantaged",
    "watch/entropy",
    "watch/engine_ratio",
)
# What a healthy run never has, and what it has instead; from the first step on that differs it is logged.
_FAULTS = {
    r"bad_rows": 0.0,
    r"dropped_groups": 0.0,
    r"reward_coverage": 1.0,
    r"unscored/.+": 0.0,
    r"unread/.+": 0.0,
    r"rewards/.+/(failures|timeouts|infinite)": 0.0,
    r"completions/with_placeholder": 0.0,
    r"watch/(skipped|empty|identical_groups)": 0.0,
}
_DETAILS = r"images/reused|rewards/.+/seconds_p(50|95)|watch/.+"

Values = Iterable[float]


class FewFigures:
    """Leaves details out of what a run logs, and faults until there is one."""

    def __init__(self) -> None:
        self._faults: set[str] = set()  # that there was one of

    def of(self, metrics: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """The figures of a step that are logged; ms-swift's own are all among them.

        Args:
            metrics: By name, the values of each micro-batch.
        """
        seconds = {name: values for name, values in metrics.items() if name.startswith(_SECONDS)}
        others = {name: values for name, values in metrics.items() if name not in seconds}
        logged = {name: values for name, values in others.items() if self._is_logged(name, values)}
        return logged | _by_phase(seconds)

    def _is_logged(self, name: str, values: Values) -> bool:
        usual = next((value for form, value in _FAULTS.items() if re.fullmatch(form, name)), None)
        if usual is None:
            return name in _ALWAYS or not re.fullmatch(_DETAILS, name)
        if any(float(value) != usual for value in values):
            self._faults.add(name)
        return name in self._faults


def _by_phase(seconds: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Seconds of the mean step; a phase that some steps do not have took no time in them."""
    steps = max((len(values) for values in seconds.values()), default=0)
    means: dict[str, list[float]] = {}
    for name, values in seconds.items():
        phase = _SECONDS + _PHASES.get(name.removeprefix(_SECONDS), REST)
        (before,) = means.get(phase, [0.0])
        means[phase] = [before + sum(values) / max(1, steps)]
    return means
