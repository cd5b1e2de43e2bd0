"""What is on in a run, what is off and why: one line, and the same with all reasons in ``gains.json``."""

import json
from collections.abc import Callable
from math import gcd
from pathlib import Path
from typing import Any

from swift_grpo_ext.parts import FEATURES, Enabled
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.watch.journal import GAINS

_LONGEST = 160 - len("swift-grpo-ext: ")  # characters of the line
_HEAVY = 4  # names that are never left out of the line: passes, and what is computed in them

Facts = dict[str, Any]


def tell_gains(host: Host, enabled: Enabled, cut: str, say: Callable[[str], None]) -> None:
    """Say what is on in one line, and write it down in the run's output folder."""
    facts = facts_of(host, enabled, cut)
    say(line_of(facts))
    write(host, facts)


def write(host: Any, facts: Facts) -> None:
    """Write it down in the output folder of a trainer of either engine, on the rank that speaks."""
    if host.accelerator.is_main_process:
        folder = Path(host.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / GAINS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def facts_of(host: Host, enabled: Enabled, cut: str = "") -> Facts:
    """What is on, ``idle`` (nothing to do) or off, by name, the sizes that it hangs on, and the cut."""
    args = host.args
    group = host.num_generations
    batch = args.per_device_train_batch_size
    idle: dict[str, str] = {}
    if enabled.shared_prefix and gcd(batch, group) == 1:
        idle["shared_prefix"] = cut or "one completion of a prompt in a micro-batch"
    gains = {name: gain(enabled.why_off.get(name, ""), idle.get(name, "")) for name in FEATURES}
    return {
        "num_generations": group,
        "of_a_prompt_on_a_rank": gcd(batch * args.steps_per_generation, group),
        "of_a_prompt_in_a_micro_batch": gcd(batch, group),
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "steps_per_generation": args.steps_per_generation,
        "cut": cut,
        "gains": gains,
    }


def line_of(facts: Facts) -> str:
    """One line of at most 160 characters; what does not fit is left to the file, the least weighty first."""
    gains = facts["gains"]

    def state(name: str, with_reason: bool) -> str:
        reason = f" ({gains[name]['why']})" if with_reason and gains[name]["why"] else ""
        return f"{name} {gains[name]['state']}{reason}"

    names = list(gains)
    heavy = names[:_HEAVY]
    first = [name for name in names if name in heavy or gains[name]["state"] == "off"]
    shorter = [(heavy, heavy[:kept]) for kept in range(_HEAVY, -1, -1)]
    for shown, with_reasons in ((names, names), (first, first), (first, heavy), *shorter):
        line = f"{', '.join(state(name, name in with_reasons) for name in shown)}; {GAINS}"
        if len(line) <= _LONGEST:
            break
    return line


def gain(why_off: str, why_idle: str = "") -> dict[str, str]:
    """Its state, why it is not on, and what would turn it on; reasons have that behind a semicolon."""
    why, _, fix = (why_off or why_idle).partition("; ")
    return {"state": "off" if why_off else "idle" if why_idle else "on", "why": why, "fix": fix}
