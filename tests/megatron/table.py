"""Every run that tests of the two trainers compare: its layout, family, rows and arguments.

Runs of one batch are made one after the other in the same processes, since most of a run is imports. ms-swift's own trainer
comes first, then the fixes of the stack, then our trainer: what a plugin file registers stays.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from swift_grpo_ext.plugin_files import plugin_file
from tests.megatron.runs import FIXES

OURS = plugin_file("megatron")
FROZEN = {"freeze_vit": True, "freeze_aligner": True}
RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
TENSOR = {"tensor_model_parallel_size": 2}
SEQUENCE = {**TENSOR, "sequence_parallel": True}
PIPELINE = {"pipeline_model_parallel_size": 2}
EXPERTS = {"expert_model_parallel_size": 2}
LORA = {"tuner_type": "lora", "lora_rank": 4, "lora_dropout": 0, "target_modules": "all-linear", **FROZEN}
GATE = ("one rank", "pipeline", "sequence parallel")
TEXT_ONLY = ("qwen3_moe",)


@dataclass(frozen=True)
class Wanted:
    """A run.

    Attributes:
        ranks: Its processes.
        arguments: On top of `runs.MEGATRON`.
        mode: What must be so of the layout that it really had.
        family: Of its model.
        rows: Of its dataset: those of the family, or "mixed".
        disable: A feature of our trainer that is switched off.
    """

    ranks: int = 1
    arguments: dict = field(default_factory=dict)
    mode: dict = field(default_factory=dict)
    family: str = "qwen2_5_vl"
    rows: str = ""
    disable: str = ""

    def by_ours(self, disable=""):
        """The same by our trainer, beside the fixes that it has already."""
        plugins = [self.arguments[key] for key in ("external_plugins",) if key in self.arguments]
        arguments = {**self.arguments, "external_plugins": [*plugins, OURS]}
        return replace(self, arguments=arguments, disable=disable)

    def changed(self, family="qwen2_5_vl", rows="", **arguments):
        """The same layout for something else."""
        return replace(self, family=family, rows=rows, arguments={**self.arguments, **arguments})

    @property
    def is_frozen(self):
        """Whether the tower and the aligner are."""
        return FROZEN.items() <= self.arguments.items()

    @property
    def reference(self):
        """What a run of transformers has of it."""
        return {"family": self.family, "rows": self.rows, **(FROZEN if self.is_frozen else {})}

    @property
    def is_lora(self):
        """Whether an adapter trains, which begins with other random numbers in each engine."""
        return self.arguments.get("tuner_type") == "lora"


LAYOUTS = {
    "one rank": Wanted(1, {}, {"tp": 1, "padding_free": True, "recompute": "none"}),
    "one rank, with fixes": Wanted(1, FIXES, {"tp": 1, "padding_free": True}),
    "padded rows": Wanted(1, {"padding_free": False}, {"padding_free": False}),
    "padded rows, with fixes": Wanted(1, {"padding_free": False, **FIXES}, {"padding_free": False}),
    "selective recomputation": Wanted(1, {"recompute_granularity": "selective"}, {"recompute": "selective"}),
    "full recomputation": Wanted(1, RECOMPUTE, {"recompute": "full"}),
    "tensor parallel": Wanted(
        2, {**TENSOR, "perform_initialization": True}, {"tp": 2, "sequence_parallel": False}
    ),
    "pipeline": Wanted(2, PIPELINE, {"pp": 2}),
    "pipeline, full recomputation": Wanted(2, {**PIPELINE, **RECOMPUTE}, {"pp": 2, "recompute": "full"}),
    "data parallel": Wanted(2, {"micro_batch_size": 2}, {"dp": 2, "distributed_optimizer": True}),
    "tensor parallel, with fixes": Wanted(2, {**TENSOR, **FIXES}, {"tp": 2, "sequence_parallel": False}),
    # Without fixes of M1 and M2 this layout is wrong, see test_faults.py.
    "sequence parallel": Wanted(2, {**SEQUENCE, **FIXES}, {"tp": 2, "sequence_parallel": True}),
    "expert parallel": Wanted(2, {**EXPERTS, "micro_batch_size": 2}, {"ep": 2, "dp": 2, "tp": 1}),
    "expert and sequence parallel": Wanted(
        2, {**SEQUENCE, **EXPERTS, **FIXES}, {"ep": 2, "tp": 2, "sequence_parallel": True}
    ),
    "tensor and pipeline parallel": Wanted(
        4, {**SEQUENCE, **PIPELINE, **FIXES}, {"tp": 2, "pp": 2, "sequence_parallel": True}
    ),
    "tensor and data parallel": Wanted(
        4, {**SEQUENCE, **FIXES, "micro_batch_size": 2}, {"tp": 2, "dp": 2, "sequence_parallel": True}
    ),
    "expert parallel with a pipeline": Wanted(
        4, {**EXPERTS, **PIPELINE, "micro_batch_size": 2}, {"ep": 2, "pp": 2, "dp": 2}
    ),
}
# Layouts on top of each other.
for first, second in (
    ("padded rows", "full recomputation"),
    ("padded rows", "sequence parallel"),
    ("padded rows", "pipeline"),
    ("padded rows", "data parallel"),
    ("selective recomputation", "sequence parallel"),
    ("selective recomputation", "pipeline"),
    ("selective recomputation", "data parallel"),
    ("full recomputation", "sequence parallel"),
    ("full recomputation", "data parallel"),
):
    above, below = LAYOUTS[first], LAYOUTS[second]
    LAYOUTS[f"{second}, {first}"] = replace(
        below, arguments={**below.arguments, **above.arguments}, mode={**below.mode, **above.mode}
    )
EXPERT = ("expert parallel", "expert and sequence parallel")  # need a model with experts
WITH_FIXES = ("one rank, with fixes", "padded rows, with fixes")
STAGES_OF_EXPERTS = "expert parallel with a pipeline"
EVERY = tuple(name for name in LAYOUTS if name not in (*EXPERT, STAGES_OF_EXPERTS, *WITH_FIXES))
RANKS = ("sequence parallel", "pipeline", "data parallel")
INSIDE = ("one rank", "padded rows", "full recomputation", "selective recomputation")
# Without a fix of M8 the deepstack of padded rows is wrong, see test_faults.py.
DEEPSTACK = ("one rank", "padded rows, with fixes", "full recomputation", "selective recomputation")
MIXED = {"rows": "mixed", "micro_batch_size": 2}
# What is trained, and in which layouts.
TRAININGS = {
    "": ({}, EVERY),
    "LoRA": (LORA, (*INSIDE, *RANKS)),
    "rows with 0, 1 and 3 images": ({**MIXED, **FROZEN}, ("one rank", "padded rows", *RANKS)),
    "rows with 0, 1 and 3 images, tower trained": (MIXED, ("one rank", "sequence parallel")),
    "rows with 0, 1 and 3 images, LoRA": ({**MIXED, **LORA}, ("one rank", "pipeline")),
    "Qwen3-VL": (
        {"family": "qwen3_vl"},
        (
            *DEEPSTACK,
            *RANKS,
            *(f"{ranks}, {again} recomputation" for again in ("full", "selective") for ranks in RANKS),
        ),
    ),
    "Qwen3-VL, frozen": ({"family": "qwen3_vl", **FROZEN}, ("one rank",)),
    "Qwen3-VL, rows with 0, 1 and 3 images": (
        {"family": "qwen3_vl", **MIXED, **FROZEN},
        ("one rank", "pipeline"),
    ),
    "Qwen3-MoE": ({"family": "qwen3_moe"}, (*INSIDE, "pipeline", "sequence parallel", *EXPERT)),
    "Qwen3-VL-MoE": (
        {"family": "qwen3_vl_moe"},
        (*DEEPSTACK, "pipeline", "sequence parallel", *EXPERT, STAGES_OF_EXPERTS),
    ),
    "Qwen3-VL-MoE, LoRA": ({"family": "qwen3_vl_moe", **LORA}, ("one rank", *EXPERT)),
    "Qwen3.5": ({"family": "qwen3_5"}, (*INSIDE, "tensor parallel, with fixes", *RANKS)),
    "Qwen3.5, frozen": ({"family": "qwen3_5", **FROZEN}, ("one rank",)),
    "Qwen3.5, LoRA": ({"family": "qwen3_5", **LORA}, ("one rank", "pipeline")),
    "Qwen3.5, rows with 0, 1 and 3 images": (
        {"family": "qwen3_5", **MIXED, **FROZEN},
        ("one rank", "pipeline"),
    ),
    "InternVL": ({"family": "internvl"}, ("one rank", "padded rows", "pipeline", "sequence parallel")),
    "InternVL, frozen": ({"family": "internvl", **FROZEN}, ("one rank",)),
    # Without a fix of M6 its rows stop ms-swift.
    "GLM-4.5V": ({"family": "glm4v_moe"}, ("one rank, with fixes",)),
    "Qwen3.5-MoE": ({"family": "qwen3_5_moe"}, ("one rank", *EXPERT)),
}
CELLS = {
    f"{training}, {layout}".removeprefix(", "): LAYOUTS[layout].changed(**further)
    for training, (further, layouts) in TRAININGS.items()
    for layout in layouts
}
FEATURES = ("shared_prefix", "completion_logits", "skip_old_logps", "self_check")
# Without a word about dropout, of which ms-swift has 0.05 by default.
LORA_BY_DEFAULT = Wanted(1, {name: value for name, value in LORA.items() if name != "lora_dropout"})
ONE_OF_A_GROUP = Wanted(1, {"micro_batch_size": 1, **FROZEN})


# Cells of a batch: more would take minutes, and threads of gloo outlive a run: after thirty there are 1700 in a process.
MOST = 4


def _batches():
    """Runs by the name of their batch, and their own."""
    made = {}
    placed = Counter()
    for title, wanted in CELLS.items():
        kind = f"{'gate' if title in GATE else wanted.family}_{wanted.ranks}"
        made.setdefault(f"{kind}_{placed[kind] // MOST}", {})[f"stock, {title}"] = wanted
        placed[kind] += 1
    for batch in made.values():
        batch.update({f"ours, {name.partition(', ')[2]}": wanted.by_ours() for name, wanted in batch.items()})
    made["gate_1_0"]["ours, one of a group"] = ONE_OF_A_GROUP.by_ours()
    made["qwen2_5_vl_1_0"]["ours, LoRA by default"] = LORA_BY_DEFAULT.by_ours()
    made["switched_off"] = {
        f"without {name}": LAYOUTS["one rank"].by_ours(f"megatron.{name}") for name in FEATURES
    }
    # Fixes stay: what runs without them comes before.
    return {
        name: dict(sorted(batch.items(), key=lambda item: _order(item[1]))) for name, batch in made.items()
    }


def _order(wanted):
    plugins = wanted.arguments.get("external_plugins")
    return 2 if isinstance(plugins, list) else 1 if plugins else 0  # only ours are a list


BATCHES = _batches()
BATCH_OF = {name: batch for batch, runs in BATCHES.items() for name in runs}
TRAINED = {wanted.family for runs in BATCHES.values() for wanted in runs.values()}
NOT_BUILT = ("gemma3", "llava_onevision", "mistral", "mistral3", "ovis2")
NOT_TRAINED = dict.fromkeys(NOT_BUILT, "mcore-bridge 1.6 has no such model")
