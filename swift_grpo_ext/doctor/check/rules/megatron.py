"""What holds for ``megatron rlhf`` alone."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, grpo_anywhere, is_harmed, rule, variable
from swift_grpo_ext.findings import ERROR, NOTE, Problem
from swift_grpo_ext.megatron.arguments import why_no_passes, why_no_sharing

_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


@rule(
    "megatron-batch",
    ERROR,
    symptoms="world size (...) is not divisible by total_model_size",
    cause="Each copy of the model takes tensor x pipeline x context parallel ranks.",
    scope=grpo_anywhere,
)
def _megatron_batch(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not run.megatron:
        return
    sizes = [args.get(name) or 1 for name in _PARALLEL]
    model = sizes[0] * sizes[1] * sizes[2]
    if run.ranks % model:
        shape = f"tensor {sizes[0]} x pipeline {sizes[1]} x context {sizes[2]} parallel"
        what = f"{model} GPUs of a model ({shape}) do not divide {run.ranks} ranks"
        yield variable("NPROC_PER_NODE", what, max(model, run.ranks_per_node // model * model))


fault(
    "tensor-parallel-gradients",
    ERROR,
    lambda run: (
        run.megatron
        and (run.arguments.tensor_model_parallel_size or 1) > 1
        and is_harmed(run, "F27")
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


@rule(
    "megatron-gains-off",
    NOTE,
    symptoms="megatron rlhf forwards a prompt once for each completion",
    cause=(
        "Some of Megatron's features change what a pass sees or how long it is: with them prompts are not "
        "shared, and the first line of the run says so."
    ),
    scope=grpo_anywhere,
)
def _megatron_gains_off(run: Run) -> Iterator[Problem]:
    if not run.megatron:
        return
    whole = why_no_passes(run.arguments)
    why, _, remedy = (whole or why_no_sharing(run.arguments)).partition("; ")
    if why:
        lost = (
            "shared prompts, images encoded once and logits of completions alone"
            if whole
            else "shared prompts"
        )
        yield Problem(f"{lost} are off: {why}", "the arguments of megatron rlhf", remedy)
