"""Selection of our own metrics that a step logs: at most 15 in a healthy run, as trackers plot each one."""

import re
from collections import defaultdict
from collections.abc import Mapping

MOST = 15

# Phases that are logged; some are added to another, all others to the rest.
_PHASES = ["prepare", "rollout", "vision", "reward", "old", "reference", "forward", "backward", "optimizer"]
_PARTS_OF = {"data": "prepare", "encode": "rollout", "weight_sync": "rollout"}
_SECONDS = "seconds/"
_ALWAYS = "watch/(moved|master_moved|advantaged|entropy|engine_ratio)"
# Metrics with their value in a healthy run; each is logged from the first step with another value on.
_FAULTS = {
    r"reward_coverage": 1.0,
    r"bad_rows|dropped_groups|(unscored|unread)/.+|completions/with_placeholder": 0.0,
    r"rewards/.+/(failures|timeouts)|watch/(skipped|empty|identical_groups)": 0.0,
}
_DETAILS = r"images/reused|watch/.+"


class FewFigures:
    """Leaves details out of a run's log, and each fault metric until the fault occurs."""

    def __init__(self) -> None:
        self._faults: set[str] = set()  # fault metrics that have left their healthy value

    def of(self, metrics: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """The metrics of a step that are logged, including all of ms-swift's own.

        Args:
            metrics: Values of each micro-batch, by name.
        """
        seconds = {name: values for name, values in metrics.items() if name.startswith(_SECONDS)}
        logged = {
            name: values
            for name, values in metrics.items()
            if name not in seconds and self._is_logged(name, values)
        }
        # A phase that is missing in some steps took no time in them.
        steps = max(map(len, seconds.values()), default=1)
        means: defaultdict[str, float] = defaultdict(float)
        for name, values in seconds.items():
            phase = name.removeprefix(_SECONDS)
            phase = _PARTS_OF.get(phase, phase)
            means[phase if phase in _PHASES else "rest"] += sum(values) / max(1, steps)
        return logged | {_SECONDS + phase: [mean] for phase, mean in means.items()}

    def _is_logged(self, name: str, values: list[float]) -> bool:
        usual = next((value for form, value in _FAULTS.items() if re.fullmatch(form, name)), None)
        if usual is None:
            return bool(re.fullmatch(_ALWAYS, name)) or not re.fullmatch(_DETAILS, name)
        if any(float(value) != usual for value in values):
            self._faults.add(name)
        return name in self._faults
