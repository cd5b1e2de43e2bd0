"""Mean time per step, by phase."""

from collections import Counter

from swift_grpo_ext.watch.journal import read_events
from swift_grpo_ext.watch.phases import PHASES
from swift_grpo_ext.watch.report.run import LoggedRun, whole


def bill(run: LoggedRun) -> dict[str, float]:
    """Mean seconds per step in each phase, the longest first; empty if nothing was timed."""
    seconds: Counter[str] = Counter()
    steps = 0
    for event in read_events(run.folder, ("bill",)):
        spent = event.get("seconds")
        steps += whole(event.get("steps"))
        seconds.update({name: spent[name] for name in PHASES if isinstance(spent, dict) and name in spent})
    return {PHASES[name]: spent / steps for name, spent in seconds.most_common() if steps and spent > 0}
