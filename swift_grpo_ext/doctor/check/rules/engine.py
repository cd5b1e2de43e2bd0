"""The rollout engine: its size, its length limit and its images."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts import model
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, option, refused, rule
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.findings import ERROR, WARNING, Problem

fault(
    "vllm-family",
    ERROR,
    lambda run: run.arguments.use_vllm and model.lacks(run, "vllm"),
    "{}",
    "--use_vllm true",
    "--use_vllm false",
    symptoms=(
        "AttributeError: 'Ovis2Processor' object has no attribute '_get_num_multimodal_tokens'",
        "AttributeError: 'Ovis2Config' object has no attribute 'visual_tokenizer_config'",
    ),
    cause="vLLM serves other classes of this family.",
)
fault(
    "stale-image-features",
    WARNING,
    lambda run: (
        run.arguments.use_vllm and run.trains_vision and run.is_harmed("F32") and run.versions["vllm"]
    ),
    "vLLM {} keeps image features over a weight sync, and the tower is trained",
    "--freeze_vit false",
    DEFECTS["F32"].fix,
    symptoms="rollouts of images that come again do not follow a vision tower that is trained",
    cause="vLLM finds features by the image alone; ms-swift drops them at a sync from vLLM 0.16 on.",
    defect=DEFECTS["F32"],
)
refused(
    "vllm-tensor-parallel",
    "A9",
    "vllm_tensor_parallel_size (...) must divide world size (...) evenly.",
    "Each colocated engine spans whole groups of training ranks.",
)


@rule(
    "vllm-model-len",
    WARNING,
    symptoms=(
        "The decoder prompt (length ...) is longer than the maximum model length",
        "completions are cut short, clipped_ratio is 1",
    ),
    cause=(
        "vllm_max_model_len holds prompt, image tokens and completion together; the completion "
        "is cut where it ends."
    ),
    reports="https://github.com/modelscope/ms-swift/issues/3592",
)
def _model_len(run: Run) -> Iterator[Problem]:
    args = run.arguments
    limit = args.vllm_max_model_len if run.colocates else None  # a server has its own
    image = _image_tokens(run)
    prompt = min(image, args.max_length or image)
    if limit is not None and limit <= args.max_completion_length + prompt:
        holds = f"an image of up to {prompt} tokens and " if prompt else "the prompt beside "
        what = f"{limit} tokens do not hold {holds}a completion of {args.max_completion_length}, which is cut"
        needed = rounded_up(args.max_completion_length + prompt + 256)
        yield option("vllm_max_model_len", what, f"{needed}{', or lower MAX_PIXELS' if prompt else ''}")


def _image_tokens(run: Run) -> int:
    """Tokens of the largest image that the launch allows; 0 if it limits none, or without a vision tower."""
    shape = model.shape(run.model) if model.limits_pixels(run) else None
    return shape.vision.tokens(model.max_pixels(run)) if shape and shape.vision else 0
