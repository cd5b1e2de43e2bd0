"""Where the time of a run went: the mean step, phase by phase, as bars."""

from dataclasses import dataclass

from swift_grpo_ext.watch.metrics import REST
from swift_grpo_ext.watch.phases import PHASES
from swift_grpo_ext.watch.report.run import Run

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
    steps = len(run.records)
    means = {
        phase: sum(run.finite(f"seconds/{phase}").values()) / steps for phase in PHASES if phase != "start"
    }
    total = sum(means.values()) + sum(run.finite(f"seconds/{REST}").values()) / steps
    if not total:
        return []
    shown = {phase: seconds for phase, seconds in means.items() if seconds >= LEAST * total}
    longest_first = sorted(shown, key=shown.__getitem__, reverse=True)
    bars = [Bar(PHASES[phase][0], shown[phase], shown[phase] / total) for phase in longest_first]
    rest = total - sum(shown.values())
    return [*bars, Bar(REST, rest, rest / total)] if rest >= LEAST * total else bars
