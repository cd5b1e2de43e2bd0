"""Report of what is on, off and why, in a run of either engine: short lines, and all in ``gains.json``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from swift_grpo_ext.features import FEATURES, Features, Section, features_of
from swift_grpo_ext.group.cut import BatchSizes, most_together
from swift_grpo_ext.watch.journal import GAINS

_LONGEST = 160 - len("swift-grpo-ext: ")  # characters of the line
_HEAVY = 4  # names that are never left out of the line: passes, and what is computed in them


def tell_gains(
    host: Any, features: Features, sizes: BatchSizes, cut: str, say: Callable[[str], None]
) -> None:
    """Say what is on, and write it down in the run's output folder, on the rank that speaks.

    Args:
        host: The trainer of either engine.
        features: Of the run.
        sizes: Of its micro-batches.
        cut: How they became what they are.
        say: Logs a line.
    """
    facts = facts_of(features, sizes, host.num_generations, cut)
    say(line_of(facts["gains"]))
    if any(row["state"] != "idle" for row in facts["watching"].values()):
        say(line_of(facts["watching"]))
    if host.accelerator.is_main_process:
        folder = Path(host.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / GAINS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def facts_of(features: Features, sizes: BatchSizes, group: int, cut: str = "") -> dict[str, Any]:
    """State of each feature, on, ``idle`` (nothing to do) or off, by section, and the sizes it depends on."""
    together = most_together(sizes.batch, sizes.held, group)
    idle = dict(features.why_idle)
    if together == 1 and "shared_prefix" in features:
        idle["shared_prefix"] = cut or "one completion of a prompt in a micro-batch"
    states = {
        name: gain(features.why_off.get(name, ""), idle.get(name, ""))
        for name in features_of(features.engine)
    }
    return {
        "num_generations": group,
        "of_a_prompt_on_a_rank": most_together(sizes.held, sizes.held, group),
        "of_a_prompt_in_a_micro_batch": together,
        "per_device_train_batch_size": sizes.batch,
        "gradient_accumulation_steps": sizes.accumulation,
        "steps_per_generation": sizes.per_generation,
        "cut": cut,
        **{
            section: {name: state for name, state in states.items() if FEATURES[name].section == section}
            for section in get_args(Section)
        },
    }


def line_of(states: dict[str, Any]) -> str:
    """One line of at most 160 characters; what does not fit is left to the file, the least weighty first."""

    def state(name: str, with_reason: bool) -> str:
        reason = f" ({states[name]['why']})" if with_reason and states[name]["why"] else ""
        return f"{name} {states[name]['state']}{reason}"

    names = list(states)
    heavy = names[:_HEAVY]
    first = [name for name in names if name in heavy or states[name]["state"] == "off"]
    shorter = [(heavy, heavy[:kept]) for kept in range(_HEAVY, -1, -1)]
    for shown, with_reasons in ((names, names), (first, first), (first, heavy), *shorter):
        line = f"{', '.join(state(name, name in with_reasons) for name in shown)}; {GAINS}"
        if len(line) <= _LONGEST:
            break
    return line


def gain(why_off: str, why_idle: str = "") -> dict[str, str]:
    """State of a feature, why it is not on, and its remedy, which a reason names after a semicolon."""
    why, _, fix = (why_off or why_idle).partition("; ")
    return {"state": "off" if why_off else "idle" if why_idle else "on", "why": why, "fix": fix}
