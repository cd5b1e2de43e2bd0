"""Refusals by ms-swift's own argument classes, asked in a child process."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Finding, NotKnownError, Problem, RuleTable, Severity, not_known_here

Refusal = tuple[str, str]
"""A message of ms-swift, and the argument that it is about, if it names one."""


# Part of a message by ms-swift -> the fix, where it is more than another value.
_CURES = {
    "Please set --model": "--model Qwen/Qwen2.5-VL-7B-Instruct",
    "Please input the training dataset": "--dataset train.jsonl",
    "num_generations must be greater than 1": "--num_generations 8",
    "evenly divisible by num_generations_eval": "--num_generations_eval 1",
    "evenly divisible by num_generations": "more --gradient_accumulation_steps, or other --num_generations",
    "must be divisible by the global batch size": "a multiple of the batch of all ranks",
    "must equal per_device_train_batch_size": "--generation_batch_size alone: --steps_per_generation follows",
    "must be divisible by num_generations": "a generation batch that is a multiple of --num_generations",
    "vllm_mode is required": "--vllm_mode colocate",
    "vllm_server_host is not None": "--vllm_server_host 127.0.0.1",
    "async generate require": "--vllm_mode server, or --async_generate false",
    "vllm_mode is not supported": "--use_vllm true, or leave --vllm_mode out",
    "truncation_strategy": "--truncation_strategy delete",
    "soft_cache_length": "--soft_cache_length 256",
    "requires a flash attention": "--attn_impl flash_attn",
    "FSDP2 is not compatible": "keep --fsdp or --deepspeed",
    "At most one of fp16 and bf16": "--bf16 true alone",
    "set the quant_bits": "--quant_bits 4",
    "ZeroDivisionError": "more ranks: as many as tensor x pipeline x context parallel sizes, or a multiple",
    "SchedulerType": "--lr_scheduler_type cosine",
    "IntervalStrategy": "--eval_strategy steps",
    "load_best_model_at_end": "--save_steps a multiple of --eval_steps, both by the same strategy",
}
# Arguments of which ms-swift's checks ask only whether they are given.
_NEEDED = frozenset(("model", "dataset", "val_dataset"))
# Arguments that its checks do not look into: it does not matter if they are unknown.
_FREE = _NEEDED | frozenset(
    """
    output_dir run_name logging_dir external_plugins adapters ref_adapters resume_from_checkpoint system
    deepspeed custom_register_path custom_dataset_info model_revision hub_model_id report_to
    max_steps num_train_epochs seed learning_rate vit_lr aligner_lr lr save_total_limit
    """.split()  # noqa: SIM905
)
_MOST = 10**6  # implausibly many completions or ranks: ms-swift would count up to them


host_rules: RuleTable[Sequence[Refusal]] = RuleTable()


@host_rules.rule(
    "host-refuses",
    Severity.ERROR,
    symptoms=(
        "ValueError: Please set --model <model_id_or_path>",
        "Please input the training dataset.",
        "num_generations must be greater than 1 for GRPO",
        "generation_batch_size (...) must be evenly divisible by num_generations (...)",
        "generation_batch_size (...) must be divisible by the global batch size (...)",
        "The global eval batch size (...) must be evenly divisible by num_generations_eval (...)",
        "vllm_mode is required when use_vllm is true",
        "vllm_mode is not supported when use_vllm is false",
        "AssertionError: assert not self.use_vllm or self.vllm_server_host is not None",
        "AssertionError: async generate require vllm_mode == server",
        "GRPO requires `truncation_strategy 'left' or 'delete'`",
        "The soft_cache_length must be set when using soft overlong rewards.",
        'The "padding_free" feature requires a flash attention implementation.',
        "CPO/ORPO or LoRA training does not require a ref_model to be passed in.",
        "ValueError: FSDP2 is not compatible with DeepSpeed.",
        "ValueError: At most one of fp16 and bf16 can be True, but not both",
        "ValueError: ... is not a valid SchedulerType, please select one of",
        "ValueError: ... is not a valid IntervalStrategy, please select one of",
        "--load_best_model_at_end requires the saving steps to be a multiple of the evaluation steps",
        "ValueError: cached_dataset is not supported for GRPO.",
        "ValueError: `warmup_ratio` and `warmup_steps` cannot be set at the same time.",
        "Streaming and lazy_tokenize are incompatible.",
        "ValueError: Please set the quant_bits.",
        "ValueError: Liger loss does not support ... yet.",
        "ValueError: OPD-RL is not supported with use_liger_kernel.",
        "ValueError: dynamic_sample requires reward_funcs",
        "ValueError: advantage_reweight=rlsd ...",
        "ValueError: sdar_loss_coef>0 ...",
        "ValueError: ... is not supported for Megatron GRPO right now",
        "AssertionError: use_vllm must be True for Megatron GRPO",
        "global batch size (...) is not divisible by micro batch size (...) times data parallel size (...)",
        "num_rollout_prompt (...) = generation_batch_size (...) // num_generations (...) must be divisible "
        "by dp_size",
        "Per-device rollout prompt count (...) must be divisible by micro_batch_size (...)",
    ),
    cause="ms-swift's own checks of its arguments, before any model is loaded.",
)
def _refuses(refused: Sequence[Refusal]) -> Iterator[Problem]:
    for message, name in refused:
        usual = (
            f"another value of --{name}, or leave it out" if name else "see ms-swift's documentation of it"
        )
        fix = next((cure for part, cure in _CURES.items() if part in message), usual)
        yield Problem(f"ms-swift refuses it: {message[:300]}", f"--{name}" if name else "", fix)


def refusals(runs: Sequence[Run]) -> list[Finding]:
    """Findings for what ms-swift refuses.

    A run with unknown arguments is not asked about, for the checks combine many.
    """
    asked = [run for run in runs if not run.arguments.open and not unread(run)]
    not_asked = [not_known_here("ms-swift's own checks")] * (len(asked) < len(runs))
    try:
        answers = host_table.ask(list(map(question, asked))) if asked else []
    except SwiftGrpoExtError as error:
        return [not_known_here(f"ms-swift's own checks: {error.what}", error.where, error.fix)]
    refused = dict.fromkeys(
        (message, _argument_of(message, run)) for message, run in zip(answers, asked, strict=True) if message
    )
    return [*not_asked, *host_rules.judged(list(refused))]


def _argument_of(message: str, run: Run) -> str:
    """The argument that a message marks, else the first of the command line that it names; may be empty."""
    marked = re.findall(r"(?:--|self\.)(\w+)", message)
    given = (word for word in re.findall(r"\w+", message) if word in run.arguments.given)
    return next(chain(marked, given), "")


def unread(run: Run) -> list[str]:
    """Arguments of the command line whose value is unknown and would matter to ms-swift."""
    return sorted(name for name in run.arguments.given - _FREE if not run.arguments.is_known(name))


def question(run: Run) -> dict[str, Any]:
    """The question to `host.child`: the arguments and the number of ranks."""
    arguments = run.arguments
    values = {name: arguments.values[name] for name in sorted(arguments.given - _FREE)}
    values |= dict.fromkeys(sorted(arguments.given & _NEEDED), "given")
    if arguments.given >= {"deepspeed", "fsdp"}:  # which ms-swift refuses; alone its file would be read
        values["deepspeed"] = "given"
    ranks = 0
    with suppress(NotKnownError):
        ranks = run.ranks if run.grpo or run.megatron else 0
        # Our trainer answers held-out rows greedily, one completion each.
        if "trainer" in run.parts and arguments.loss_type != "real":
            values.setdefault("num_generations_eval", 1)
        if not run.megatron and not run.evaluates:  # as ms-swift sets it
            values["eval_strategy"] = "no"
    is_meant = all(value < _MOST for value in (ranks, *values.values()) if isinstance(value, int))
    return {"kind": arguments.kind, "values": values, "ranks": ranks * is_meant}
