"""Configurations at random, over all axes at once: pairs of values do not show what three of them break.

Each release draws others. What ms-swift itself cannot train is drawn, too: then ours has nothing to equal.
"""

import random
from dataclasses import dataclass

from pairs.cases import LOSSES, cut
from sweep.axes import AXES, can_be
from sweep.table import ESTIMATORS, EVAL, FLAT, OWN_EVAL, PLAIN_LORA, SCALES, USERS_CUT, Configuration

from swift_grpo_ext.losses import LOSSES as LOSS_TABLE
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.version import __version__

NUMBER = 100
FLAT_FAMILIES = ("llama", "internvl", "qwen3_vl", "qwen2_5_vl")  # that SDPA by segments can stand in for
# How the two runs are made: of each hundred so many.
WAYS = {"in this process": 68, "one rank under a launcher": 8, "resumed": 8, "two ranks": 16}
SHARDINGS = {
    "DDP": {},
    "FSDP2": {"fsdp": "fsdp2"},
    "ZeRO-2": {"deepspeed": "zero2"},
    "ZeRO-3": {"deepspeed": "zero3"},
    "ZeRO-3, layer by layer": {"deepspeed": "zero3", "ds3_gather_for_generation": False},
}
TUNERS = {
    "full": {},
    "all trained": {"freeze_vit": False, "freeze_aligner": False},
    "aligner trained": {"freeze_aligner": False},
    "LoRA": PLAIN_LORA,
    "DoRA": {**PLAIN_LORA, "use_dora": True},
    "LoRA and biases": {**PLAIN_LORA, "lora_bias": "all"},
    "lora_llm": {**PLAIN_LORA, "tuner_type": "lora_llm"},
    "adapter": {"tuner_type": "adapter"},
    "llamapro": {"tuner_type": "llamapro", "llamapro_num_new_blocks": 1},
}
OF_IMAGES = ("all trained", "aligner trained", "lora_llm")
OF_TEXT = ("adapter", "llamapro")
# With these ms-swift's reference is not the start (F48).
OTHER_REFERENCE = ("LoRA and biases", "lora_llm", *OF_TEXT)
REWARDS = ("score", "third", ["score", "third"], ["of_some", "of_others"], "some")
OPTIONS = {
    "advantage_estimator": (*["grpo"] * 3, *ESTIMATORS[1:]),
    "scale_rewards": SCALES,
    "kl_in_reward": (None, None, True),
    "top_entropy_quantile": (None, None, None, 0.3),
    "padding_side": (None, None, "left"),
    "gradient_checkpointing": (True, False),
    "log_entropy": (None, True),
    "delta": (None, None, None, 1.5),
    "importance_sampling_level": (None, None, None, "sequence", "sequence_token"),
}
UPDATES = (
    {},
    {},
    {"num_iterations": 2, "max_steps": 4, "epsilon": 0.05},
    {"steps_per_generation": 2, "max_steps": 4, "epsilon": 0.05},  # by the accumulation, which is drawn, too
)


@dataclass(frozen=True)
class Drawn:
    """A configuration, and how its runs are made.

    Attributes:
        way: Of `WAYS`.
        equals: Ours is that of ms-swift; else a documented difference is in it, and it has to train.
    """

    configuration: Configuration
    way: str
    equals: bool
    name: str


def drawn(number, seed=__version__):
    """One of the hundred."""
    generator = random.Random(f"{seed} {number}")
    choose = generator.choice
    way = [way for way, share in WAYS.items() for _ in range(share)][number % NUMBER]
    while True:
        row = {axis: choose(values) for axis, values in AXES.items() if axis not in ("watching", "tuner")}
        row["watching"], row["tuner"] = True, choose(list(TUNERS))
        vision = TINY[row["family"]].vision
        fits = row["tuner"] not in (OF_TEXT if vision else OF_IMAGES)
        if can_be([row[axis] for axis in AXES]) and fits:
            break
    if row["images"] == "text":
        row["images"] = choose(("text", "roles"))
    size, _, accumulation = row["cut"].partition(" x ")
    options = {**cut(int(size), int(accumulation)), **LOSSES[row["loss"]], **TUNERS[row["tuner"]]}
    options |= {"beta": row["beta"], "reward_funcs": choose(REWARDS), **choose(UPDATES)}
    if "steps_per_generation" in options:
        options["steps_per_generation"] *= options["gradient_accumulation_steps"]
    given = {name: choose(values) for name, values in OPTIONS.items() if name not in options}
    options |= {name: value for name, value in given.items() if value is not None}
    script = choose(("ragged", "ragged", "equal", "mixed_cut"))
    options["overlong_filter"] = script == "mixed_cut" and choose((True, False))
    variables = dict(USERS_CUT)
    if row["family"] in FLAT_FAMILIES and choose((True, False)):
        options |= FLAT
    if way == "in this process" and choose((True, False, False)):
        options |= EVAL
        variables |= OWN_EVAL
    if way == "two ranks":
        sharding = choose(list(SHARDINGS))
        row["sharding"] = sharding
        options |= {**SHARDINGS[sharding], "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
        options.pop("steps_per_generation", None)
    by_size = (
        LOSS_TABLE[options.get("loss_type", "grpo")].per_micro_batch or "top_entropy_quantile" in options
    )
    differs = (
        options["reward_funcs"] == "some"  # ms-swift counts what is not scored as 0
        or (row["tuner"] in OTHER_REFERENCE and row["beta"])
        or (way == "two ranks" and by_size)  # their micro-batches are of another size
    )
    words = {**row, **{name: value for name, value in options.items() if name in OPTIONS}}
    name = f"{number}: {way}, " + ", ".join(f"{key} {value}" for key, value in words.items())
    configuration = Configuration(options, row["family"], row["images"], script, variables)
    return Drawn(configuration, way, not differs, name)
