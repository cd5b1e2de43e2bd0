"""Where the time of a run went: the mean step, phase by phase, as bars."""

from collections import Counter
from dataclasses import dataclass

from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.phases import PHASES
from swift_grpo_ext.watch.report.run import Run, whole

REST = "rest"
LEAST = 0.005  # share below which a phase is part of the rest


@dataclass(frozen=True)
class Bar:
    """A phase of the mean step."""

    label: str
    seconds: float
    share: float  # of the step, 0 to 1

    @property
    def percent(self) -> str:
        """The share in words."""
        return f"{100 * self.share:.0f} %"


def bill(run: Run) -> list[Bar]:
    """The phases of the mean step, the longest first and the rest last; empty if none was timed."""
    seconds = Counter[str]()
    steps = 0
    for event in read_events(run.folder, ("bill",)):
        spent = event.get("seconds")
        steps += whole(event.get("steps"))
        seconds.update({name: spent[name] for name in PHASES if isinstance(spent, dict) and name in spent})
    total = seconds.total()
    if not steps or total <= 0:
        return []
    shown = [(name, value) for name, value in seconds.most_common() if value >= LEAST * total]
    bars = [Bar(PHASES[name][0], value / steps, value / total) for name, value in shown]
    rest = total - sum(value for _, value in shown)
    return [*bars, Bar(REST, rest / steps, rest / total)] if rest >= LEAST * total else bars
