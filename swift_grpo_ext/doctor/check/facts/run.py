"""One ``swift rlhf`` command as data for the rules. Facts that need more are in the files beside."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts import environment, files
from swift_grpo_ext.doctor.check.facts.arguments import Arguments
from swift_grpo_ext.doctor.check.facts.environment import Plugin
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.script import Command, Launch
from swift_grpo_ext.doctor.check.unknown import PLUGIN, decided
from swift_grpo_ext.findings import NotKnownError


@dataclass(frozen=True, eq=False)
class Run:
    """One ``swift rlhf`` command as preflight sees it."""

    arguments: Arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # the variables that it sees: text, or Unknown
    # installed releases by distribution; None for those that are missing
    versions: Mapping[str, str | None] = field(default_factory=dict)
    gpu_memory: float = 0  # GiB of one GPU; 0 if unknown
    launch: Launch = field(default_factory=Launch)  # the script that contains it
    command: Command = field(default_factory=Command)  # its place in the script
    servers: tuple[Arguments, ...] = ()  # of the ``swift rollout`` commands of its script
    row_limit: int = 32  # rows of each dataset that are looked at; 0 for none

    def find(self, name: str) -> Path | None:
        """The file or folder of that name, if it exists.

        Raises:
            NotKnownError: the folder in which the command is started is unknown.
        """
        path = Path(name).expanduser()
        if not self.command.folders and not path.is_absolute():
            raise NotKnownError(f"files, in a folder that is not known: {name:.60}")
        places = (folder / path for folder in self.command.folders or (Path(),))
        return next(filter(os.path.exists, places), None)  # unlike Path.exists, False for base64 text, too

    def dataset(self, name: str) -> Path | None:
        """Path in ``path#100`` or ``path:subset``, if it exists here."""
        base = files.drawn(name)
        return self.find(name) or self.find(base) or self.find(base.rsplit(":", 1)[0])

    @property
    def grpo(self) -> bool:
        """True if it is GRPO, or was meant to be."""
        args = self.arguments
        is_said = args.is_known("rlhf_type") and "rlhf_type" in args.given
        return args.rlhf_type == "grpo" if is_said else "reward_funcs" in args.given

    @property
    def megatron(self) -> bool:
        """True for ``megatron rlhf``, to which few of the rules apply."""
        return self.arguments.kind == host_table.MEGATRON

    @property
    def ranks_per_node(self) -> int:
        """Training processes of one node."""
        return environment.number(self.environ, "NPROC_PER_NODE")  # as intended, even if python starts one

    @property
    def nodes(self) -> int:
        """Machines."""
        return environment.number(self.environ, "NNODES")

    @property
    def ranks(self) -> int:
        """Training processes of all nodes."""
        return self.ranks_per_node * self.nodes

    @property
    def micro_batch(self) -> int:
        """Completions of one forward pass on one rank."""
        return max(1, self.arguments.per_device_train_batch_size or 1)

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches per generation batch, from either of the options for it."""
        args = self.arguments
        if args.generation_batch_size and not args.steps_per_generation:
            return max(1, args.generation_batch_size // (self.micro_batch * self.ranks))
        return max(1, int(args.steps_per_generation or args.gradient_accumulation_steps or 1))

    @property
    def full(self) -> bool:
        """True for full-parameter training."""
        return bool(self.arguments.tuner_type == "full")

    @property
    def by_accelerate(self) -> bool:
        """True if ``accelerate launch`` starts it, which shards by its own configuration file."""
        return not {"ACCELERATE_USE_FSDP", "ACCELERATE_DEEPSPEED_ZERO_STAGE"}.isdisjoint(self.environ)

    @property
    def colocates(self) -> bool:
        """True if vLLM shares the trainer's GPUs."""
        return bool(self.arguments.use_vllm and self.arguments.vllm_mode == "colocate")

    @property
    def trains_vision(self) -> bool:
        """True if the vision tower or the aligner is trained."""
        frozen = (self.arguments.freeze_vit, self.arguments.freeze_aligner)
        return any(decided(part) is False for part in frozen)

    @property
    def own_server(self) -> Arguments | None:
        """The arguments of its rollout server, if its own script starts that on this machine; else None."""
        args = self.arguments
        if len(self.servers) != 1 or not args.use_vllm or args.vllm_mode != "server":
            return None
        is_here = set(args.vllm_server_host or ()) <= {"127.0.0.1", "localhost", "0.0.0.0"}
        return self.servers[0] if is_here else None

    @property
    def evaluates(self) -> bool:
        """True if it has data to evaluate on, and evaluation is not turned off."""
        args = self.arguments
        strategy = str(args.eval_strategy or args.save_strategy or "").rsplit(".", 1)[-1].lower()
        return strategy != "no" and bool(args.val_dataset or (args.split_dataset_ratio or 0) > 0)

    @cached_property
    def plugins(self) -> list[Plugin]:
        """Plugin files of the command line."""
        names = [
            *(self.arguments.external_plugins or []),
            *(self.arguments.values.get("custom_register_path") or []),
        ]
        return [Plugin(name, None if name == PLUGIN else self.find(name)) for name in names]

    @cached_property
    def parts(self) -> frozenset[str]:
        """Parts of this package that the run's plugins turn on."""
        on = frozenset[str]().union(*(plugin.parts for plugin in self.plugins))
        return on - environment.disabled(self.environ)

    @property
    def has_plugins_of_the_user(self) -> bool:
        """True if some plugin is not ours: it may register any name."""
        return any(plugin.of_the_user for plugin in self.plugins)

    def is_patched(self, defect: str) -> bool:
        """True if we have a patch for a defect and it will be applied."""
        patch = DEFECTS[defect].patch
        off = {f"compat.{patch}", f"compat.{defect}"} & environment.disabled(self.environ)
        return bool(patch) and "compat" in self.parts and not off

    def is_harmed(self, defect: str) -> bool:
        """True if the run's releases are known to have a defect that our patch will not fix."""
        return DEFECTS[defect].harms(self.versions) and not self.is_patched(defect)

    @property
    def model(self) -> str:
        """The model's folder if it is here, else its name."""
        name = str(self.arguments.model or "")
        return str(self.find(name) or name) if name and self.command.folders else name
