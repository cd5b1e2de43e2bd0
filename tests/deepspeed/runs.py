"""Runs with a DeepSpeed configuration, and what check says to it."""

from swift_grpo_ext.doctor.check.facts.arguments import Arguments
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules import table
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.findings import worst_first

RULES = [rule for rule in table.rules if rule.id.startswith("ds-")]


def a_run(config, version=None, *, nodes=1, ranks_per_node=1, plugin=False, full=False, **arguments):
    """A run with a configuration, a release of DeepSpeed and arguments of ms-swift."""
    values = {
        "deepspeed": config,
        "tuner_type": "full" if full else "lora",
        "external_plugins": [PLUGIN] if plugin else [],
        **arguments,
    }
    environ = {"NPROC_PER_NODE": str(ranks_per_node), "NNODES": str(nodes)}
    return Run(Arguments(values), environ, {"deepspeed": version})


def lint(run):
    """The findings of the rules for DeepSpeed's file, worst first."""
    return worst_first(finding for rule in RULES for finding in rule.findings(run))
