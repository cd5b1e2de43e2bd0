"""Every configuration that is held against stock: one line each. `GATE` runs in `make test`, all in `make test-slow`."""

from dataclasses import dataclass, field

from pairs.cases import LORA, LOSSES, cut

USERS_CUT = {"SWIFT_GRPO_EXT_GROUP_BATCH": "0"}
"""Micro-batch is held against micro-batch; test_group_cut.py holds the automatic cut against this."""


@dataclass(frozen=True)
class Configuration:
    """What a run is told, beside the base of the self-test: two prompts of four completions, SGD.

    Attributes:
        options: The host's arguments.
        model: Of `inputs.MODELS`.
        data: Of `inputs.DATA`; by default one image a row, none for text models.
        script: How long completions are, of `trainers.LENGTHS`.
        variables: Environment of both runs.
        bits: Of the type that the model computes in.
        still: There is nothing to learn, so nothing may move.
    """

    options: dict
    model: str = "qwen2_5_vl"
    data: str = ""
    script: str = "ragged"
    variables: dict = field(default_factory=dict)
    bits: int = 32
    still: bool = False


C = Configuration
TEXT = ("llama", "mistral", "qwen3_moe")
TWICE = {**cut(4, 2), "num_iterations": 2, "max_steps": 4, "epsilon": 0.05, "beta": 0}
HALF = {"torch_dtype": "bfloat16", "bf16": True, "learning_rate": 10.0}
EVAL = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "split_dataset_ratio": 0.5,
    "per_device_eval_batch_size": 4,
}
# Our evaluations answer other rows, greedily; this is ms-swift's own, through our passes.
OWN_EVAL = {"SWIFT_GRPO_EXT_DISABLE": "trainer.held_out"}

GATE = {
    "grpo": C(cut(8)),
    "grpo, beta 0": C({**cut(8), "beta": 0}),
    "grpo, 4 x 2": C(cut(4, 2)),
    "grpo, 2 x 4: halves of groups": C(cut(2, 4)),
    "bnpo": C({**cut(4, 2), **LOSSES["bnpo"]}),
    "dr_grpo": C({**cut(4, 2), **LOSSES["dr_grpo"]}),
    "dapo, 2 x 4": C({**cut(2, 4), **LOSSES["dapo"]}),
    "cispo": C({**cut(8), **LOSSES["cispo"]}),
    "sapo": C({**cut(8), **LOSSES["sapo"]}),
    "gspo": C({**cut(4, 2), **LOSSES["gspo"]}),
    "two iterations": C({**TWICE}),
    "two iterations, dapo": C({**TWICE, **LOSSES["dapo"]}),
    "LoRA": C({**cut(8), **LORA, "lora_dropout": 0}),
    "LoRA, two iterations": C({**TWICE, **LORA, "lora_dropout": 0}),
    "vision tower trained": C({**cut(8), "freeze_vit": False, "freeze_aligner": False}),
    "checkpointing off": C({**cut(8), "gradient_checkpointing": False}),
    "bf16": C({**cut(8), **HALF}, bits=16),
    "KL in rewards": C({**cut(8), "kl_in_reward": True}),
    "scale_rewards none": C({**cut(8), "scale_rewards": "none"}),
    "entropy quantile": C({**cut(8), "top_entropy_quantile": 0.3}),
    "overlong filter": C({**cut(8), "overlong_filter": True}, script="mixed_cut"),
    "two rewards": C({**cut(8), "reward_funcs": ["score", "third"], "reward_weights": [1, 0.5]}),
    "a reward for some prompts, one for the others": C({**cut(8), "reward_funcs": ["of_some", "of_others"]}),
    "images 0 to 3": C(cut(8), data="images 0-3"),
    "ovis2": C(cut(8), "ovis2"),
    "ovis2, images 0 to 3, 2 x 4": C(cut(2, 4), "ovis2", "images 0-3"),
    "the host's template": C(cut(8), "qwen2_5_vl_stock"),
    **{f"{model}": C({**cut(8)}, model) for model in TEXT},
    **{family: C(cut(8), family) for family in ("qwen2_vl", "qwen3_vl", "qwen3_5", "internvl")},
    "llama, LoRA, dapo": C({**cut(4, 2), **LORA, "lora_dropout": 0, **LOSSES["dapo"]}, "llama"),
    "evaluation": C({**cut(4), **EVAL}, variables=OWN_EVAL),
    "padding on the left": C({**cut(8), "padding_side": "left"}),
}

FLAT = {"padding_free": True, "attn_impl": "segments"}
GATE |= {
    "padding_free": C({**cut(8), **FLAT}),
    "padding_free, 1 x 8: nothing to share": C({**cut(1, 8), **FLAT, **LOSSES["dapo"]}),
}

CUTS = {"8 x 1": cut(8), "4 x 2": cut(4, 2), "2 x 4": cut(2, 4), "1 x 8": cut(1, 8)}
REAL = {"loss_type": "real"}
ESTIMATORS = ("grpo", "rloo", "reinforce_plus_plus")
SCALES = ("group", "batch", "none")
PLAIN_LORA = {**LORA, "lora_dropout": 0}

SLOW = {
    **{
        f"{loss}, {name}, beta {beta}": C({**LOSSES[loss], **CUTS[name], "beta": beta})
        for loss in LOSSES
        for name in CUTS
        for beta in (0.04, 0)
    },
    **{f"real, {name}": C({**REAL, **CUTS[name]}) for name in ("8 x 1", "4 x 2")},
    **{f"{loss}, two iterations": C({**TWICE, **LOSSES[loss], "epsilon": 0.01}) for loss in LOSSES},
    **{f"{loss}, ovis2, 4 x 2": C({**LOSSES[loss], **cut(4, 2)}, "ovis2") for loss in LOSSES},
    **{
        f"{model}, {tuner}, {name}": C({**options, **CUTS[name]}, model)
        for model in ("llama", "mistral", "qwen3_moe", "ovis2")
        for tuner, options in (("full", {}), ("LoRA", PLAIN_LORA))
        for name in ("8 x 1", "2 x 4")
    },
    **{
        f"{model}, {data}, {name}": C(CUTS[name], model, data)
        for model in ("qwen2_5_vl", "ovis2")
        for data in ("text", "two images", "images 0-3")
        for name in ("4 x 2", "1 x 8")
    },
    **{
        f"{estimator}, scale {scale}": C({**cut(8), "advantage_estimator": estimator, "scale_rewards": scale})
        for estimator in ESTIMATORS
        for scale in SCALES
    },
    **{
        f"{estimator}, KL in rewards": C(
            {**cut(4, 2), "advantage_estimator": estimator, "kl_in_reward": True}
        )
        for estimator in ESTIMATORS
    },
    **{
        f"{script}, {loss}, filter {keeps}": C(
            {**cut(4, 2), **LOSSES[loss], "overlong_filter": keeps},
            script=script,
            still=keeps and script == "cut",
        )
        for script in ("equal", "one_word", "cut", "mixed_cut")
        for loss in ("grpo", "dapo")
        for keeps in (False, True)
    },
    **{
        f"padding {side}, {data}": C({**cut(4, 2), "padding_side": side}, data=data)
        for side in ("left", "right")
        for data in ("text", "images 0-3")
    },
    **{
        f"{level}, {loss}, two iterations": C({**TWICE, **LOSSES[loss], "importance_sampling_level": level})
        for level in ("sequence", "sequence_token")
        for loss in ("grpo", "dr_grpo", "bnpo")
    },
    **{
        f"padding_free, {model}, {tuner}, {name}": C({**options, **CUTS[name], **FLAT}, model)
        for model in ("llama", "internvl", "qwen3_vl", "qwen2_5_vl")
        for tuner, options in (("full", {}), ("LoRA", PLAIN_LORA))
        for name in ("8 x 1", "2 x 4")
    },
    "padding_free, images 0 to 3": C({**cut(4, 2), **FLAT}, data="images 0-3"),
    "padding_free, two iterations": C({**TWICE, **FLAT}),
    "padding_free, entropy quantile": C({**cut(8), **FLAT, "top_entropy_quantile": 0.3}),
    "fp32 weights, bf16 autocast": C({**cut(8), "bf16": True, "learning_rate": 1.0}, bits=16),
    "ovis2, bf16": C({**cut(8), **HALF}, "ovis2", bits=16),
    "llama, bf16": C({**cut(8), **HALF}, "llama", bits=16),
    "bf16, LoRA": C({**cut(4, 2), **HALF, **PLAIN_LORA}, bits=16),
    "groups of 2": C({**cut(4, 2), "num_generations": 2}),
    "groups of 8": C({**cut(8), "num_generations": 8}),
    "two updates per generation": C({**cut(4), "steps_per_generation": 2, "max_steps": 4}),
    "two updates per generation, dapo": C(
        {**cut(4), **LOSSES["dapo"], "steps_per_generation": 2, "max_steps": 4}
    ),
    "three iterations, LoRA": C({**TWICE, **PLAIN_LORA, "num_iterations": 3, "max_steps": 6}),
    "two-sided clipping": C({**TWICE, "delta": 1.5, "epsilon_high": 0.3}),
    "off-policy sequence mask": C({**TWICE, "off_policy_sequence_mask_delta": 0.001}),
    "soft gates": C({**TWICE, **LOSSES["sapo"]}),
    "dynamic sampling": C(
        {**cut(8), "dynamic_sample": True, "max_resample_times": 3, "reward_funcs": "third"}
    ),
    "some groups equal": C({**cut(8), "reward_funcs": "third"}, script="one_word"),
    "nothing to learn but the reference": C(
        {**cut(8), "reward_funcs": "equal", "num_iterations": 2, "max_steps": 4}, still=True
    ),
    "reference follows": C({**cut(8), "sync_ref_model": True, "ref_model_sync_steps": 1, "max_steps": 3}),
    "temperature": C({**cut(8), "temperature": 0.6}),
    "log_entropy": C({**cut(4, 2), "log_entropy": True}),
    "entropy quantile, 4 x 2": C({**cut(4, 2), "top_entropy_quantile": 0.3}),
    "checkpointing off, LoRA": C({**cut(8), **PLAIN_LORA, "gradient_checkpointing": False}),
    "checkpointing, reentrant": C({**cut(8), "gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    "eager attention": C({**cut(8), "attn_impl": "eager"}),
    "LoRA in the tower too": C({**cut(8), **PLAIN_LORA, "freeze_vit": False, "freeze_aligner": False}),
    "DoRA": C({**cut(8), **PLAIN_LORA, "use_dora": True}),
    "rsLoRA": C({**cut(8), **PLAIN_LORA, "use_rslora": True}),
    "aligner trained": C({**cut(8), "freeze_aligner": False}),
    "language model frozen": C({**cut(8), "freeze_llm": True, "freeze_vit": False}),
    "ovis2, tower trained": C({**cut(4, 2), "freeze_vit": False, "freeze_aligner": False}, "ovis2"),
    "evaluation, one completion": C({**cut(4), **EVAL, "num_generations_eval": 1}, variables=OWN_EVAL),
    "evaluation, LoRA": C({**cut(4), **EVAL, **PLAIN_LORA}, variables=OWN_EVAL),
    "evaluation of images 0 to 3": C({**cut(4), **EVAL}, data="images 0-3", variables=OWN_EVAL),
    "Adam": C({**cut(8), "optim": "adamw_torch", "learning_rate": 1e-3, "adam_epsilon": 1e-2}),
    "clipped gradients": C({**cut(8), "max_grad_norm": 0.01}),
    "warm-up": C({**cut(8), "warmup_ratio": 0.5, "max_steps": 3}),
    "a system prompt": C({**cut(8), "system": "Answer with one digit."}),
    "three rewards, gdpo": C({**cut(8), "reward_funcs": ["score", "third"], "scale_rewards": "gdpo"}),
    "the host's template, images 0 to 3": C(cut(4, 2), "qwen2_5_vl_stock", "images 0-3"),
    "the host's template, LoRA": C({**cut(8), **PLAIN_LORA}, "qwen2_5_vl_stock"),
    "nothing shared": C(cut(4, 2), variables={"SWIFT_GRPO_EXT_DISABLE": "trainer.shared_prefix"}),
    "an old pass": C(cut(4, 2), variables={"SWIFT_GRPO_EXT_DISABLE": "trainer.skip_old_logps"}),
    "recomputing everything": C(cut(4, 2), variables={"SWIFT_GRPO_EXT_DISABLE": "trainer.reduced_recompute"}),
}
# What others of the gate cross already.
CROSSED = (
    "two iterations, dapo",
    "sapo",
    "gspo",
    "dr_grpo",
    "scale_rewards none",
    "entropy quantile",
    "two rewards",
)
CROSSED += (
    "LoRA, two iterations",
    "ovis2, images 0 to 3, 2 x 4",
    "checkpointing off",
    "bnpo",
    "grpo, 4 x 2",
    "qwen2_vl",
)
SLOW |= {name: GATE.pop(name) for name in CROSSED}


TAUGHT = {"teacher_model": "TEACHER", "teacher_kl_coef": 0.5, "teacher_model_type": "llama"}
OPD = {**cut(4, 2), "teacher_model": "TEACHER", "teacher_kl_coef": 0.5}
SLOW |= {
    "teacher, llama": C({**OPD, "teacher_model_type": "llama"}, "llama"),
    "teacher, images": C({**OPD, "teacher_model_type": "qwen2_5_vl"}),
    "teacher alone": C({**OPD, "teacher_model_type": "qwen2_5_vl", "reward_funcs": None}),
    "teacher, two iterations": C({**OPD, **TWICE, "teacher_model_type": "qwen2_5_vl"}),
    "teacher, LoRA": C({**OPD, **PLAIN_LORA, "teacher_model_type": "qwen2_5_vl"}),
    "teacher is the start, LoRA": C({**OPD, **PLAIN_LORA, "teacher_model": "MODEL"}),
    "own teacher with a hint": C(cut(4, 2), "llama", "hints"),
    "own teacher with a hint, SDAR": C({**cut(4, 2), "sdar_loss_coef": 0.1}, "llama", "hints"),
    "own teacher with a hint, RLSD": C({**cut(4, 2), "advantage_reweight": "rlsd"}, "llama", "hints"),
}

FAMILIES = ("qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "internvl")
SLOW |= {
    **{
        f"{family}, {data}, {tuner}": C({**options, **cut(4, 2)}, family, data)
        for family in FAMILIES
        for data in ("image", "images 0-3")
        for tuner, options in (("full", {}), ("LoRA", PLAIN_LORA))
    },
    **{f"{family}, two iterations, dapo": C({**TWICE, **LOSSES["dapo"]}, family) for family in FAMILIES},
}
TURNS = {"multi_turn_scheduler": "sweep_again", "max_turns": 2}
SLOW |= {
    "two turns": C({**cut(4, 2), **TURNS}),
    "two turns, llama": C({**cut(8), **TURNS}, "llama"),
    "three turns, ovis2, LoRA": C({**cut(8), **PLAIN_LORA, **TURNS, "max_turns": 3}, "ovis2"),
    "two turns, two iterations": C({**TWICE, **TURNS}),
    "two turns, some cut": C({**cut(8), **TURNS}, script="mixed_cut"),
}

SHARDED = {**cut(4), "gradient_checkpointing": False}

COMMAND = {model: C({**cut(4, 2), "beta": 0.04}, model) for model in TEXT}
"""Through the command, on one rank."""

# Through the command, on two ranks; each asserts its mode (`modes.py`).
RANKS = {
    "DDP": C(cut(4)),
    "DDP, halves of groups": C(cut(2, 2)),
    "FSDP2": C({**SHARDED, "fsdp": "fsdp2"}),
    "FSDP2, beta 0": C({**SHARDED, "beta": 0, "fsdp": "fsdp2"}),
    "FSDP2, LoRA": C({**SHARDED, **PLAIN_LORA, "fsdp": "fsdp2"}),
    "FSDP2, llama": C({**SHARDED, "fsdp": "fsdp2"}, "llama"),
    "FSDP2, teacher": C({**SHARDED, **TAUGHT, "fsdp": "fsdp2"}, "llama"),
    "FSDP2, teacher, LoRA": C({**SHARDED, **TAUGHT, **PLAIN_LORA, "fsdp": "fsdp2"}, "llama"),
    "sequence parallel": C({**cut(4), "sequence_parallel_size": 2}, "qwen2_5_vl two heads"),
    "sequence parallel, llama": C({**cut(4), "sequence_parallel_size": 2}, "llama"),
}
