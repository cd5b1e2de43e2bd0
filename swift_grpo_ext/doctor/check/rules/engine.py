"""The rollout engine: its size, its length limit, its images, and the room that they leave for a question."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts import model, rows
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, option, rule, variable
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.doctor.plan.setting import USUAL_PIXELS
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


def _uneven_engines(run: Run) -> tuple[int, int, int, str] | None:
    size = run.arguments.vllm_tensor_parallel_size
    shape = model.shape(run.model)
    heads = shape.heads if shape else 0
    fits = run.ranks_per_node % size == 0 == heads % size if run.colocates and size > 0 else True
    shares = f" with equal shares of {heads} attention heads" if heads else ""
    return None if fits else (run.ranks, run.nodes, size, shares)


fault(
    "vllm-tensor-parallel",
    ERROR,
    _uneven_engines,
    "{} ranks on {} nodes cannot be cut into engines of {}{}",
    "--vllm_tensor_parallel_size",
    "--vllm_tensor_parallel_size with a divisor of the ranks of a node and of the heads, such as 1",
    symptoms="vllm_tensor_parallel_size (...) must divide world size (...) evenly.",
    cause="Each colocated engine spans whole groups of training ranks, on one node.",
    reports="A9",
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
    side = run.own_server or (args if run.colocates else None)
    limit = side.vllm_max_model_len if side else None
    image = _image_tokens(run) if model.limits_pixels(run) else 0
    prompt = min(image, args.max_length or image)
    if limit is not None and limit <= args.max_completion_length + prompt:
        holds = f"an image of up to {prompt} tokens and " if prompt else "the prompt beside "
        what = f"{limit} tokens do not hold {holds}a completion of {args.max_completion_length}, which is cut"
        needed = rounded_up(args.max_completion_length + prompt + 256)
        yield option("vllm_max_model_len", what, f"{needed}{', or lower MAX_PIXELS' if prompt else ''}")


def _image_tokens(run: Run) -> int:
    """Tokens of the largest image, or of a usual one without a limit; 0 without a vision tower."""
    shape = model.shape(run.model)
    if shape is None or shape.vision is None:
        return 0
    return shape.vision.tokens(model.max_pixels(run) if model.limits_pixels(run) else USUAL_PIXELS)


@rule(
    "images-fill-the-prompt",
    WARNING,
    symptoms=(
        "rows are dropped or prompts contain image tokens and no text",
        "Image features and image tokens do not match",
    ),
    cause="Truncation keeps every image token, so a large image leaves no room for the question.",
    reports="C4",
)
def _images_fill(run: Run) -> Iterator[Problem]:
    limit = run.arguments.max_length
    shape = model.shape(run.model)
    is_seen = run.grpo and any(sample.tokens for sample in rows.training(run))
    if is_seen or not limit or shape is None or shape.vision is None or shape.vision.tile:
        return
    tokens = _image_tokens(run)
    if tokens >= limit:
        most = (limit - 256 if limit > 512 else limit // 2) * (shape.vision.patch * shape.vision.merge) ** 2
        what = f"an image may be {tokens} tokens, max_length is {limit}"
        yield variable("MAX_PIXELS", what, f"{most}, or --max_length {rounded_up(tokens + 256)}")
