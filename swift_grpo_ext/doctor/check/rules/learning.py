"""Runs that learn nothing, or something else than intended; and names that ms-swift looks up late."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts import model
from swift_grpo_ext.doctor.check.facts.arguments import sure
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, fault, grpo, grpo_anywhere, refused, rule
from swift_grpo_ext.findings import ERROR, WARNING, Problem
from swift_grpo_ext.models.families import FAMILIES, is_native


def _rounded_away(run: Run) -> tuple[float] | None:
    args = run.arguments
    rate = args.learning_rate or 1e-5  # the default of full training
    has_masters = not run.full or args.deepspeed or args.fsdp or args.use_cpu or run.by_accelerate
    return None if has_masters or args.torch_dtype not in (None, "bfloat16") or rate >= 1e-5 else (rate,)


fault(
    "bf16-without-masters",
    WARNING,
    _rounded_away,
    "full training of bf16 weights at lr {:g} rounds most updates away",
    "--torch_dtype",
    "--deepspeed ext_zero2 (fp32 masters), or --torch_dtype float32 --bf16 true",
    symptoms="reward does not move although loss and grad_norm look fine",
    cause="A bf16 weight moves only by 1/256 of itself; without DeepSpeed there is no fp32 copy "
    "that sums smaller steps. At lr 1e-6 1.9 % of the parameters moved per step, in fp32 "
    "99.9 %.",
    reports=("A8", "B2"),
)
fault(
    "fp16-overflows",
    WARNING,
    lambda run: run.arguments.torch_dtype == "float16" or run.arguments.fp16,
    "float16 overflows in these models",
    "--torch_dtype float16",
    "--torch_dtype bfloat16",
    symptoms=("completions are only !!!!!!!!", "loss is NaN in float16"),
    cause="Activations of these models were trained in bfloat16 and exceed float16's range; fp16 "
    "cures none of the crashes that it is advised for.",
    reports="A5",
)
fault(
    "best-by-loss",
    WARNING,
    lambda run: run.evaluates and "loss" in (run.arguments.metric_for_best_model or ""),
    "the best checkpoint is chosen by the loss",
    "--metric_for_best_model",
    "--metric_for_best_model eval_reward",
    symptoms="best_model_checkpoint answers no better than the others",
    cause="On-policy the loss of GRPO is 0 by construction, so its least value says nothing about answers.",
    scope=grpo,
)
fault(
    "reference-without-adapter",
    WARNING,
    lambda run: (
        run.arguments.adapters
        and not run.arguments.resume_from_checkpoint
        and not run.arguments.ref_adapters
        and run.arguments.beta
        and run.arguments.tuner_type == "lora"
        and run.arguments.adapters[0]
    ),
    "the reference lacks the adapter that training starts from",
    "--adapters",
    "--ref_adapters {}, or --beta 0",
    symptoms="kl starts far above 0 when training goes on from an SFT adapter",
    cause="With LoRA the reference is the model without adapters, so the KL term pulls the policy "
    "back behind its SFT, unless --ref_adapters names the same adapter.",
)
fault(
    "tensor-parallel-gradients",
    ERROR,
    lambda run: (
        run.megatron
        and (run.arguments.tensor_model_parallel_size or 1) > 1
        and run.is_harmed("F27")
        and (run.versions["ms-swift"], run.arguments.tensor_model_parallel_size)
    ),
    "ms-swift {} computes wrong gradients with tensor parallel {}",
    "--tensor_model_parallel_size",
    DEFECTS["F27"].fix,
    symptoms="reward does not move with --tensor_model_parallel_size above 1, though log-probs are right",
    cause="The sum over the vocabulary's shards is a plain all-reduce inside the loss: the log-probs are "
    "right, and most of their gradient is lost.",
    defect=DEFECTS["F27"],
    scope=grpo_anywhere,
)
refused("real-cuts-groups", "F16", "shape '[-1, ...]' is invalid for input of size ...")
refused("streamed-groups", "F18", "reward does not move with --streaming true")


@rule(
    "native-ovis2",
    ERROR,
    symptoms=(
        "is not supported because no suitable `model_type` was found.",
        "Unrecognized configuration class ... for this kind of AutoModel: AutoModelForCausalLM",
    ),
    cause=(
        "Stock ms-swift knows the remote-code Ovis2 only; transformers' own class is registered "
        "by our plugin."
    ),
    reports="C1",
)
def _native_ovis2(run: Run) -> Iterator[Problem]:
    family = model.family(run)
    only_ours = family and family.host_model_type not in host_table.names("model_type")
    is_its_own = is_native(run.model) or run.model.lower().endswith(("-hf", "_hf"))
    if family and only_ours and is_its_own and "templates" not in run.parts:
        what = f"stock ms-swift has no template for transformers' {family.architecture}"
        yield Problem(what, f"--model {run.arguments.model}", OUR_PLUGIN)


_OURS = {
    "template": [family.host_template for family in FAMILIES.values()],
    "model_type": [family.host_model_type for family in FAMILIES.values()],
    "callbacks": ["ext_watch"],
}
# Arguments whose value ms-swift looks up in a registry, and the fix for a name that is missing there.
_REGISTERED = "register it in --external_plugins"
_CONFIGURED = "leave it out: ms-swift finds it by the model's config.json"
_LOOKED_UP = {
    **dict.fromkeys(("callbacks", "multi_turn_scheduler", "optimizer", "reward_model_plugin"), _REGISTERED),
    **dict.fromkeys(("template", "model_type"), _CONFIGURED),
    **dict.fromkeys(("report_to", "attn_impl"), "leave it out"),
    "tuner_type": "--tuner_type lora",
}
# Correct values for common wrong names: QLoRA's, and one of 3.x.
_MEANT = {"qlora": "lora --quant_method bnb --quant_bits 4", "qwen2_5": "qwen2"}


@rule(
    "unknown-name",
    ERROR,
    symptoms=(
        "AssertionError: assert args.multi_turn_scheduler in multi_turns",
        "KeyError for the name of a template, a model_type, a callback or an optimizer",
        "NotImplementedError, or KeyError, for a tuner_type",
        "ValueError: rm_plugin ... is not implemented in swift.rewards",
        "is not supported, only azure_ml, comet_ml, mlflow",
        'ValueError: Specified `attn_implementation="..."` is not supported.',
    ),
    cause="The parser takes any word; ms-swift looks it up in its table only when it needs it.",
)
def _unknown(run: Run) -> Iterator[Problem]:
    """Accept names with a slash: these are attention kernels on a hub."""
    for argument, fix in _LOOKED_UP.items():
        value = run.arguments.said(argument).get(argument) or []
        names = {*host_table.names(argument), *_OURS.get(argument, ())}
        for name in value if isinstance(value, list) else [value]:
            is_ours = name in names or "/" in name
            if not is_ours and (argument == "report_to" or not run.has_plugins_of_the_user):
                close = _MEANT.get(name) or sure(name, names)
                cure = f"--{argument} {close}" if close else fix
                yield Problem(f"ms-swift does not know the {argument} {name}", f"--{argument}", cure)
