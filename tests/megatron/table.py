"""Every run that tests of the two trainers compare: its layout, family, rows and arguments.

Runs of one batch are made one after the other in the same processes, since most of a run is imports. ms-swift's own trainer
comes first, then the fixes of the stack, then our trainer: what a plugin file registers stays.
"""

from dataclasses import dataclass, field

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
        return Wanted(self.ranks, arguments, self.mode, self.family, self.rows, disable)


LAYOUTS = {
    "one rank": Wanted(1, {}, {"tp": 1, "padding_free": True, "recompute": "none"}),
    "padded rows": Wanted(1, {"padding_free": False}, {"padding_free": False}),
    "selective recomputation": Wanted(1, {"recompute_granularity": "selective"}, {"recompute": "selective"}),
    "full recomputation": Wanted(1, RECOMPUTE, {"recompute": "full"}),
    "tensor parallel": Wanted(
        2, {**TENSOR, "perform_initialization": True}, {"tp": 2, "sequence_parallel": False}
    ),
    "pipeline": Wanted(2, PIPELINE, {"pp": 2}),
    "pipeline, full recomputation": Wanted(2, {**PIPELINE, **RECOMPUTE}, {"pp": 2, "recompute": "full"}),
    "data parallel": Wanted(2, {"micro_batch_size": 2}, {"dp": 2, "distributed_optimizer": True}),
    # Without fixes of M1 and M2 this layout is wrong, see test_faults.py.
    "sequence parallel": Wanted(2, {**SEQUENCE, **FIXES}, {"tp": 2, "sequence_parallel": True}),
}
FAMILIES = {
    "Qwen3-VL": Wanted(family="qwen3_vl"),
    "Qwen3-MoE": Wanted(family="qwen3_moe"),
    "Qwen3-VL-MoE": Wanted(family="qwen3_vl_moe"),
    "Qwen3.5": Wanted(family="qwen3_5"),
    "Qwen3-VL, pipeline": Wanted(2, PIPELINE, {"pp": 2}, "qwen3_vl"),
    "Qwen3-MoE, expert parallel": Wanted(
        2, {**EXPERTS, "micro_batch_size": 2}, {"ep": 2, "dp": 2}, "qwen3_moe"
    ),
    "Qwen3-VL-MoE, expert parallel": Wanted(2, EXPERTS, {"ep": 2, "dp": 2}, "qwen3_vl_moe"),
}
# Compared with ms-swift's own Megatron trainer. InternVL and GLM-4.5V are missing: it stops with their tiny models.
OTHERS = {
    "qwen3_vl, frozen": Wanted(1, FROZEN, {}, "qwen3_vl"),
    "qwen3_5, frozen": Wanted(1, FROZEN, {}, "qwen3_5"),
    "LoRA": Wanted(1, LORA),
    "LoRA, pipeline": Wanted(2, {**LORA, **PIPELINE, "micro_batch_size": 2}, {"pp": 2}),
    "rows with 0, 1 and 3 images": Wanted(1, {"micro_batch_size": 2, **FROZEN}, {}, rows="mixed"),
    "rows with 0, 1 and 3 images, data parallel": Wanted(
        2, {"micro_batch_size": 2, **FROZEN}, {"dp": 2}, rows="mixed"
    ),
}
FEATURES = ("shared_prefix", "completion_logits", "skip_old_logps", "self_check")
# Without a word about dropout, of which ms-swift has 0.05 by default.
LORA_BY_DEFAULT = Wanted(1, {name: value for name, value in LORA.items() if name != "lora_dropout"})
ONE_OF_A_GROUP = Wanted(1, {"micro_batch_size": 1, **FROZEN})


def _batches():
    """Runs by the name of their batch, and their own."""
    made = {}
    for title, wanted in {**LAYOUTS, **FAMILIES}.items():
        kind = "gate" if title in GATE else "layouts" if title in LAYOUTS else "families"
        batch = made.setdefault(f"{kind}_{wanted.ranks}", {})
        batch[f"stock, {title}"] = wanted
    for title, wanted in OTHERS.items():
        made.setdefault(f"others_{wanted.family}_{wanted.ranks}", {})[f"stock, {title}"] = wanted
    for batch in made.values():
        batch.update({f"ours, {name.partition(', ')[2]}": wanted.by_ours() for name, wanted in batch.items()})
    made["gate_1"]["ours, one of a group"] = ONE_OF_A_GROUP.by_ours()
    made["others_qwen2_5_vl_1"]["ours, LoRA by default"] = LORA_BY_DEFAULT.by_ours()
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
NOT_TRAINED = {
    **dict.fromkeys(NOT_BUILT, "mcore-bridge 1.6 has no such model"),
    "internvl": "ms-swift's own trainer stops there (NaN in local grad norm)",
    "glm4v_moe": "ms-swift's own trainer stops there (mm_token_type_ids must match input_ids)",
}
