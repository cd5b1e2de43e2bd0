"""Everything of a launch that the rules look at."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from swift_grpo_ext.compat.registry import patches
from swift_grpo_ext.doctor.check.facts import environment, files, rewards, rows
from swift_grpo_ext.doctor.check.facts.arguments import Arguments, parse
from swift_grpo_ext.doctor.check.facts.environment import Plugin
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.launch.commands import Command, Launch
from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, Word, decided, written
from swift_grpo_ext.doctor.plan.models import find_config, shape_by_config
from swift_grpo_ext.doctor.plan.setting import MOST_PIXELS, ModelShape
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError
from swift_grpo_ext.models.families import VisionFamily, family_of
from swift_grpo_ext.rewards.reading.json_text import Json
from swift_grpo_ext.settings import PREFIX, Settings, load_settings
from swift_grpo_ext.versions import PackageFact, package_facts

LOCAL = ("127.0.0.1", "localhost", "0.0.0.0")
HPZ = "zero_hpz_partition_size"


@dataclass(frozen=True)
class Server:
    """A ``swift rollout`` command beside the run."""

    arguments: Arguments  # its arguments
    environ: Mapping[str, Any]  # the variables that it sees: text, or Unknown


@dataclass(frozen=True)
class Run:
    """One ``swift rlhf`` command as preflight sees it."""

    arguments: Arguments  # its arguments
    environ: Mapping[str, Any] = field(default_factory=dict)  # the variables that it sees: text, or Unknown
    # installed releases by distribution; None for those that are missing
    versions: Mapping[str, str | None] = field(default_factory=dict)
    gpu_memory: float = 0  # GiB of one GPU; 0 if unknown
    cpu_memory: float = 0  # GiB of one machine; 0 if unknown
    launch: Launch = field(default_factory=Launch)  # the script that it stands in
    command: Command = field(default_factory=lambda: Command(()))  # its place in the script
    # what relative paths may be relative to: where it is started, and for a script its own folder;
    # none where that is not known
    folders: tuple[Path, ...] = (Path("."),)
    row_limit: int = 32  # rows of each dataset that are looked at; 0 for none

    def find(self, name: str) -> Path | None:
        """The file or folder of that name, if it is there.

        Raises:
            NotKnownError: the folder that the command is started in is not known.
        """
        path = Path(name).expanduser()
        if not self.folders and not path.is_absolute():
            raise NotKnownError(f"files, in a folder that is not known: {name}")
        places = (folder / path for folder in self.folders or (Path(),))
        return next(filter(os.path.exists, places), None)  # unlike Path.exists, False for base64 text, too

    @cached_property
    def as_written(self) -> "Run":
        """As if ``"$@"`` and the like were empty, to look at what is written itself: rows and rewards."""
        return replace(self, arguments=self.arguments.as_written) if self.arguments.open else self

    def dataset(self, name: str) -> tuple[Path | None, int | None]:
        """Path of ``path#100`` or ``path:subset``, if it is here, and the number of rows."""
        base, number = files.drawn(name) if self.find(name) is None else (name, None)
        return self.find(base) or self.find(base.rsplit(":", 1)[0]), number

    @property
    def grpo(self) -> bool:
        """It is GRPO, or was meant to be."""
        args = self.arguments
        return not args.is_known("rlhf_type") or args.rlhf_type == "grpo" or "rlhf_type" not in args.given

    @property
    def megatron(self) -> bool:
        """It is ``megatron rlhf``, for which few of the rules hold."""
        return self.arguments.kind == host_table.MEGATRON

    @cached_property
    def packages(self) -> list[PackageFact]:
        """The packages that this one needs, each with what is wrong with its release."""
        return package_facts()

    @property
    def ranks_per_node(self) -> int:
        """Training processes of one node."""
        own = "NPROC_PER_NODE" if self.environ.get("NPROC_PER_NODE") else "LOCAL_WORLD_SIZE"
        return _number(self.environ, own)

    @property
    def nodes(self) -> int:
        """Machines."""
        if "NNODES" not in self.environ and "LOCAL_WORLD_SIZE" in self.environ:
            return max(1, _number(self.environ, "WORLD_SIZE") // self.ranks_per_node)
        return _number(self.environ, "NNODES")

    @property
    def ranks(self) -> int:
        """Training processes of all nodes."""
        return self.ranks_per_node * self.nodes

    @property
    def micro_batch(self) -> int:
        """Completions of one forward pass on one rank."""
        return max(1, self.arguments.per_device_train_batch_size or 1)

    @property
    def accumulation(self) -> int:
        """Micro-batches of one optimizer step."""
        return max(1, self.arguments.gradient_accumulation_steps or 1)

    @property
    def full(self) -> bool:
        """Full-parameter training."""
        return bool(self.arguments.tuner_type == "full")

    @cached_property
    def plugins(self) -> list[Plugin]:
        """Plugin files, as the command line names them."""
        names = [*(self.arguments.external_plugins or []), *(self.arguments.custom_register_path or [])]
        return [Plugin(name, None if name == PLUGIN else self.find(name)) for name in names]

    @cached_property
    def servers(self) -> list[Server]:
        """The ``swift rollout`` commands of its script."""
        commands = self.launch.all("rollout")
        return [Server(parse(_of_server(own), "RolloutArguments"), own.environ) for own in commands]

    @property
    def colocates(self) -> bool:
        """vLLM shares the trainer's GPUs."""
        return bool(self.arguments.use_vllm and self.arguments.vllm_mode == "colocate")

    @property
    def trains_vision(self) -> bool:
        """The vision tower or the aligner is trained."""
        frozen = (self.arguments.freeze_vit, self.arguments.freeze_aligner)
        return any(decided(part) is False for part in frozen)

    @property
    def own_server(self) -> Server | None:
        """The rollout server that it asks, if its own script starts it on this machine."""
        args = self.arguments
        if not self.servers or not args.use_vllm or args.vllm_mode != "server":
            return None
        is_here = all(host in LOCAL for host in args.vllm_server_host or [])
        return self.servers[0] if is_here else None

    @cached_property
    def parts(self) -> frozenset[str]:
        """Parts of this package that the run's plugins turn on."""
        on = frozenset[str]().union(*(plugin.parts for plugin in self.plugins))
        return on - environment.disabled(self.environ)

    @property
    def has_plugins_of_the_user(self) -> bool:
        """Some plugin is not ours."""
        return any(plugin.of_the_user for plugin in self.plugins)

    def is_patched(self, patch_id: str) -> bool:
        """Whether a patch of ours will be in place."""
        patch = patches().get(patch_id)
        names = {f"compat.{patch_id}", f"compat.{patch.defect.id if patch else ''}"}
        off = names & environment.disabled(self.environ)
        return "compat" in self.parts and patch is not None and not off

    @cached_property
    def settings(self) -> Settings:
        """This package's settings as the run reads them; the defaults where they cannot be known."""
        own = {name: decided(self.environ[name]) for name in self.environ if name.upper().startswith(PREFIX)}
        others = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
        with environment.environment({**others, **(own if self.parts else {})}):
            return load_settings()

    @property
    def steps_per_generation(self) -> int:
        """Micro-batches of one generation batch, from either way to say it."""
        args = self.arguments
        if args.generation_batch_size and not args.steps_per_generation:
            return max(1, args.generation_batch_size // (self.micro_batch * self.ranks))
        return max(1, int(args.steps_per_generation or self.accumulation))

    @property
    def eval_strategy(self) -> str:
        """When it evaluates; ``no`` for never."""
        args = self.arguments
        return str(args.eval_strategy or args.save_strategy or "").rsplit(".", 1)[-1].lower()

    @property
    def evaluates(self) -> bool:
        """There is data to evaluate on, and nothing turns it off."""
        rows = self.arguments.val_dataset or (self.arguments.split_dataset_ratio or 0) > 0
        return self.eval_strategy != "no" and bool(rows)

    @property
    def evaluated_completions(self) -> int:
        """Completions of a prompt in an evaluation; our trainer's is one, as it is greedy."""
        args = self.arguments
        ours = "trainer" in self.parts and not self.settings.disables("trainer.held_out")
        usual = 1 if ours and args.loss_type != "real" else args.num_generations
        return int(args.num_generations_eval or usual)

    @property
    def model(self) -> str:
        """The model's folder if it is here, else its name."""
        name = str(self.arguments.model or "")
        return str(self.find(name) or name) if name else ""

    @cached_property
    def shape(self) -> ModelShape | None:
        """Sizes of the model; None where no configuration is at hand."""
        return model_shape(self.model)

    @cached_property
    def family(self) -> VisionFamily | None:
        """The model's family; None for one that is not described."""
        with suppress(SwiftGrpoExtError):
            config = find_config(self.model) or {}
            return family_of(str(config.get("model_type") or self.arguments.model_type or ""))
        return None

    @cached_property
    def deepspeed(self) -> dict[str, Json] | str | None:
        """The DeepSpeed configuration; a string says why it cannot be read."""
        value = self.arguments.deepspeed
        if not value:
            return None
        config = value
        if not isinstance(value, dict):
            config = files.deepspeed(str(value), self.find, may_be_made=self.command.makes_files)
        size = decided(self.arguments.zero_hpz_partition_size)
        if isinstance(config, dict) and size is not None:
            config["zero_optimization"] = {**_table(config.get("zero_optimization")), HPZ: size}
        return config

    @property
    def zero(self) -> dict[str, Json]:
        """The ZeRO block of the DeepSpeed configuration; empty without one, or with one that is no table."""
        return _table(self.deepspeed.get("zero_optimization")) if isinstance(self.deepspeed, dict) else {}

    @property
    def stage(self) -> int:
        """ZeRO stage; 0 without one, or with one that is no whole number."""
        stage = self.zero.get("stage", 0)
        return stage if type(stage) is int else 0

    def offloads(self, block: str) -> bool:
        """Whether ``offload_optimizer`` or ``offload_param`` is kept outside the GPU."""
        return _table(self.zero.get(block)).get("device", "none") != "none"

    @cached_property
    def data(self) -> rows.Data:
        """The first rows of its datasets, read at the first question.

        Raises:
            NotKnownError: where they are is not known.
        """
        written = self.as_written
        return rows.read(self, self.row_limit) if written is self else written.data

    @cached_property
    def trials(self) -> rewards.Trials:
        """What became of its rewards on rows of the training data, tried at the first question.

        Raises:
            NotKnownError: which rewards there are, or where the rows are, is not known.
        """
        written = self.as_written
        return rewards.tried(self, self.data.training) if written is self else written.trials

    @property
    def limits_pixels(self) -> bool:
        """The launch says how large an image may be."""
        return "MAX_PIXELS" in self.environ or bool(self.arguments.max_pixels)

    @property
    def max_pixels(self) -> int:
        """Pixels of one image: the smaller of MAX_PIXELS and --max_pixels, else the families' 12.8 M."""
        limits = [_number(self.environ, "MAX_PIXELS", 0), self.arguments.max_pixels or 0]
        return min((limit for limit in limits if limit), default=MOST_PIXELS)


def _of_server(command: Command) -> list[Word]:
    """A server's arguments; what stands in a file of its own is not read."""
    first, *others = command.arguments or ("",)
    is_file = written(first).endswith(files.CONFIG_SUFFIXES)
    return [Unknown(written(first), many=True) if is_file else first, *others]


def model_shape(name: str) -> ModelShape | None:
    """Sizes of a model; None where no configuration is at hand."""
    with suppress(SwiftGrpoExtError):
        config = find_config(name)
        return shape_by_config(config) if config else None
    return None


def _table(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _number(environ: Mapping[str, Any], name: str, default: int = 1) -> int:
    """A whole number of at least one; the default where it is not set.

    Raises:
        NotKnownError: it is not a whole number.
    """
    text = (environ.get(name) or "").strip()
    if text and not text.isdecimal():
        raise NotKnownError(f"{name} ({text})")
    return max(1, int(text)) if text else default
