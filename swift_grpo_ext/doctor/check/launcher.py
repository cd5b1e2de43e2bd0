"""Finds the ``swift`` command behind torchrun, accelerate, deepspeed, srun or python -m, and its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PLUGIN = "<swift-grpo-ext>"
"""Stands for the output of $(swift-grpo-ext path); other substitutions stay as they are."""

_MODULE = re.compile(r"(?:^swift\.cli\.|swift/cli/)(\w+?)(?:\.py)?$")
# Options of torchrun, deepspeed and accelerate; the last one counts the ranks of all nodes together.
_OPTIONS = {
    "nproc_per_node": "NPROC_PER_NODE",
    "num_gpus": "NPROC_PER_NODE",
    "nnodes": "NNODES",
    "num_nodes": "NNODES",
    "num_machines": "NNODES",
    "node_rank": "NODE_RANK",
    "machine_rank": "NODE_RANK",
    "num_processes": "WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "main_process_ip": "MASTER_ADDR",
    "rdzv_endpoint": "MASTER_ADDR",
}


@dataclass(frozen=True)
class Command:
    """One ``swift`` command with the variables it sees.

    Attributes:
        words: ``swift``, the subcommand, its arguments.
        environ: Variables that it sees, or was meant to see: those that are set and not exported too.
        unexported: Names of the latter.
        waits: The script goes on only when it has ended.
    """

    words: tuple[str, ...]
    environ: Mapping[str, str]
    unexported: frozenset[str] = frozenset()
    waits: bool = False

    @property
    def subcommand(self) -> str:
        """``rlhf``, ``rollout``, ..."""
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the subcommand."""
        return self.words[2:]

    def value(self, name: str) -> str:
        """What an option is given, as text; empty if it is not there."""
        for index, word in enumerate(self.arguments):
            flag, _, value = word.partition("=")
            if flag.startswith("--") and flag.lstrip("-").replace("-", "_") == name:
                return value or "".join(self.arguments[index + 1 : index + 2])
        return ""


def split_at_swift(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The launcher's words, and the subcommand with its arguments; None where no swift is started.

    Known are ``swift rlhf``, ``python -m swift.cli.rlhf``, ``.../cli/rlhf.py`` and ``swift.cli.main rlhf``.
    """
    for index, word in enumerate(words):
        rest = list(words[index + 1 :])
        if word.rsplit("/", 1)[-1] == "swift" and rest:
            return list(words[:index]), rest
        if module := _MODULE.search(word):
            name = [] if module[1] == "main" else [module[1]]
            return list(words[:index]), [*name, *rest]
    return None


def launcher_variables(words: Sequence[str]) -> dict[str, str]:
    """Ranks and nodes that a launcher's own options ask for, as the host's variables."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        name, _, value = word.lstrip("-").replace("-", "_").partition("=")
        if word.startswith("--") and name in _OPTIONS:
            found[_OPTIONS[name]] = value or "".join(words[index + 1 : index + 2])
    world, nodes = found.pop("WORLD_SIZE", ""), found.get("NNODES", "1")
    if world.isdecimal() and nodes.isdecimal():
        found["NPROC_PER_NODE"] = str(max(1, int(world) // max(1, int(nodes))))
    names = {word.rsplit("/", 1)[-1] for word in words}
    for launcher in ("accelerate", "deepspeed"):  # a file of its own, or all GPUs: not known here
        if launcher in names:
            found.setdefault("NPROC_PER_NODE", f"$({launcher})")
    if any(word.lstrip("-").replace("-", "_").startswith("rdzv_endpoint") for word in words):
        found.setdefault("NODE_RANK", "0")  # given by the rendezvous
    return found
