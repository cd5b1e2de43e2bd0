"""What is on in a run with Megatron, what is off and why: in one line, and in ``gains.json``."""

from math import gcd
from typing import Any

from swift_grpo_ext.group.batch_sizes import BatchSizes
from swift_grpo_ext.megatron.features import FEATURES, WATCHING, Enabled
from swift_grpo_ext.megatron.host import Host
from swift_grpo_ext.trainer.gains import gain, line_of, write


def write_gains(host: Host, enabled: Enabled, sizes: BatchSizes, line: str) -> tuple[str, str]:
    """Write it down in the output folder, on the rank that speaks; a line of gains, one of monitors."""
    facts = facts_of(host, enabled, sizes, line)
    write(host, facts)
    return line_of(facts), line_of({"gains": facts["watching"]})


def facts_of(host: Host, enabled: Enabled, sizes: BatchSizes, line: str) -> dict[str, Any]:
    """What is on or off, by name, and the sizes that it hangs on, by their names with transformers."""
    group = host.num_generations
    return {
        "num_generations": group,
        "of_a_prompt_on_a_rank": gcd(sizes.batch * sizes.per_generation, group),
        "of_a_prompt_in_a_micro_batch": gcd(sizes.batch, group),
        "per_device_train_batch_size": sizes.batch,
        "gradient_accumulation_steps": sizes.accumulation,
        "steps_per_generation": sizes.per_generation,
        "cut": line,
        "gains": {name: gain(enabled.why_off.get(name, "")) for name in FEATURES},
        "watching": {name: gain(enabled.why_off.get(name, "")) for name in WATCHING},
    }
