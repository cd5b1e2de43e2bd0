"""What holds for ``megatron rlhf`` alone."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.rules.table import grpo_anywhere, option, rule, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import ERROR, NOTE, Problem
from swift_grpo_ext.megatron.arguments import why_no_passes, why_no_sharing

_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


@rule(
    "megatron-batch",
    ERROR,
    symptoms=(
        "global batch size (...) is not divisible by micro batch size (...) times data parallel size (...)",
        "num_rollout_prompt (...) = generation_batch_size (...) // num_generations (...) must be divisible "
        "by dp_size",
        "Per-device rollout prompt count (...) must be divisible by micro_batch_size (...)",
        "world size (...) is not divisible by total_model_size",
    ),
    cause=(
        "Ranks are shared out to tensor, pipeline and context parallel groups; what is left is "
        "data parallel, and each of its ranks takes whole prompts of a generation batch in whole "
        "micro-batches."
    ),
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
    elif "global_batch_size" in args.given:
        yield from _megatron_sizes(run, run.ranks // model)


def _megatron_sizes(run: Run, parts: int) -> Iterator[Problem]:
    """Batches, shared out over so many data parallel ranks."""
    args = run.arguments
    micro = args.micro_batch_size or 1
    whole = args.global_batch_size or 1
    if whole % (micro * parts):
        what = f"global_batch_size {whole} is not a multiple of micro_batch_size {micro} x {parts} data ranks"
        yield _nearest_batch(what, micro * parts, whole)
    size = args.generation_batch_size
    steps = args.steps_per_generation
    group = max(1, args.num_generations)
    batch = size or whole * (steps or 1)
    if batch % whole or (size and steps and size != whole * steps):
        what = f"generation_batch_size {batch} is not global_batch_size {whole} x steps_per_generation"
        yield option("generation_batch_size", what, f"{whole * max(1, round(batch / whole))} alone")
    elif batch % group:
        what = f"{batch} completions of a generation batch do not make whole groups of {group}"
        yield _nearest_batch(what, group, whole)
    elif batch // group % (parts * micro):
        what = f"{batch // group} prompts cannot be shared out over {parts} data ranks in micro-batches of"
        yield _nearest_batch(f"{what} {micro}", group * parts * micro, whole)


def _nearest_batch(what: str, step: int, size: int) -> Problem:
    """The nearest batch that is a multiple of a step."""
    return option("global_batch_size", what, step * max(1, round(size / step)))


@rule(
    "tensor-parallel-gradients",
    ERROR,
    symptoms="reward does not move with --tensor_model_parallel_size above 1, though log-probs are right",
    cause=(
        "The sum over the vocabulary's shards is a plain all-reduce inside the loss: the log-probs are "
        "right, and most of their gradient is lost."
    ),
    defect=DEFECTS["F27"],
    scope=grpo_anywhere,
)
def _tensor_parallel_gradients(run: Run) -> Iterator[Problem]:
    size = run.arguments.tensor_model_parallel_size or 1
    version = run.versions.get("ms-swift")
    defect = DEFECTS["F27"]
    harms = defect.harms({"ms-swift": version}) and not run.heals(defect.patch)
    if run.megatron and size > 1 and harms:
        what = f"ms-swift {version} computes wrong gradients with tensor parallel {size}"
        yield Problem(what, "--tensor_model_parallel_size", DEFECTS["F27"].fix)


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
