"""The rollout engine: its mode, its length and images, and what it serves."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts.run import Run, Server
from swift_grpo_ext.doctor.check.rules.table import (
    anywhere,
    divisors,
    fault,
    is_harmed,
    lacks,
    nearest_of,
    option,
    rule,
    variable,
)
from swift_grpo_ext.doctor.plan.arithmetic import rounded_up
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "vllm-server-address",
    ERROR,
    symptoms=(
        "AssertionError: assert not self.use_vllm or self.vllm_server_host is not None",
        "the start hangs at `Start connecting to vLLM server` although vllm_mode is colocate",
    ),
    cause="Since 4.0 the mode is not guessed from other arguments.",
)
def _server_address(run: Run) -> Iterator[Problem]:
    args = run.arguments
    serves = args.vllm_mode == "server"
    has_address = args.vllm_server_host or args.vllm_server_base_url
    if args.use_vllm and serves and not has_address:
        what = "the server has no address"
        yield Problem(what, "--vllm_server_host", "--vllm_server_host 127.0.0.1")
    elif has_address and not serves:
        what = "with a server's address the start waits for that server, whatever the mode"
        yield Problem(what, "--vllm_server_host", "--use_vllm true --vllm_mode server, or no address")


fault(
    "vllm-family",
    ERROR,
    lambda run: run.arguments.use_vllm and lacks(run).get("vllm"),
    "{}",
    "--use_vllm true",
    "--use_vllm false",
    symptoms=(
        "AttributeError: 'Ovis2Processor' object has no attribute '_get_num_multimodal_tokens'",
        "AttributeError: 'Ovis2Config' object has no attribute 'visual_tokenizer_config'",
    ),
    cause="vLLM serves other classes of this family.",
)


@rule(
    "vllm-tensor-parallel",
    ERROR,
    symptoms="vllm_tensor_parallel_size (...) must divide world size (...) evenly.",
    cause="Each colocated engine spans whole groups of training ranks, on one node.",
    reports="A9",
)
def _tensor_parallel(run: Run) -> Iterator[Problem]:
    args = run.arguments
    size = args.vllm_tensor_parallel_size
    if not run.colocates or size < 1:
        return
    valid = divisors(run.ranks_per_node)
    what = ""
    if run.ranks % size or size > run.ranks_per_node:
        what = f"{run.ranks} ranks on {run.nodes} nodes cannot be cut into engines of {size}"
    elif run.shape and run.shape.heads % size:
        what = f"{run.shape.heads} attention heads cannot be split over {size} GPUs"
        valid = [number for number in valid if run.shape.heads % number == 0]
    if what:
        yield option("vllm_tensor_parallel_size", what, nearest_of(valid, size))


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
    limit = _engine_limit(run)
    if limit is None:
        return
    image = _image_tokens(run) if run.limits_pixels else 0
    prompt = min(image, args.max_length or image)
    if limit <= args.max_completion_length + prompt:
        holds = f"an image of up to {prompt} tokens and " if prompt else "the prompt beside "
        what = f"{limit} tokens do not hold {holds}a completion of {args.max_completion_length}, which is cut"
        needed = rounded_up(args.max_completion_length + prompt + 256)
        yield option("vllm_max_model_len", what, f"{needed}{', or lower MAX_PIXELS' if prompt else ''}")


def _image_tokens(run: Run) -> int:
    return run.shape.vision.tokens(run.max_pixels) if run.shape and run.shape.vision else 0


def _engine_limit(run: Run) -> int | None:
    """vllm_max_model_len of the engine, colocated or of the server that the same script starts."""
    if run.own_server:
        return run.own_server.arguments.vllm_max_model_len
    is_colocated = run.arguments.use_vllm and run.arguments.vllm_mode != "server"
    return run.arguments.vllm_max_model_len if is_colocated else None


@rule(
    "pixels-of-the-server",
    ERROR,
    symptoms=(
        "Image features and image tokens do not match",
        "log-probs of trainer and server differ on every image",
    ),
    cause="Trainer and `swift rollout` each resize images by their own MAX_PIXELS.",
    reports="C6",
    scope=anywhere,
)
def _server_pixels(run: Run) -> Iterator[Problem]:
    server = run.own_server
    if server is None:
        return
    for name in ("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM"):
        of_trainer, of_server = (_pixels(side, name) for side in (run, server))
        if of_trainer != of_server:
            trainer = f"{of_trainer or 'unset'} for the trainer"
            what = f"{name} is {trainer} and {of_server or 'unset'} for swift rollout"
            yield variable(name, what, f"{of_trainer or of_server}, before both commands")


def _pixels(side: Run | Server, name: str) -> str | None:
    """What the trainer or its server takes a limit of pixels from: a variable, or ``--max_pixels``."""
    value = side.environ.get(name)
    option_value = side.arguments.max_pixels if name == "MAX_PIXELS" else None
    return value or (str(option_value) if option_value else None)


# Ranks that vLLM reserves room for, in each of its releases since 0.11 (newer ones take 1, too).
_ADAPTER_ROOMS = (8, 16, 32, 64, 128, 256, 320, 512)


@rule(
    "vllm-adapter",
    ERROR,
    symptoms=(
        "LoRA rank 64 is greater than max_lora_rank 16.",
        "max_lora_rank (24) must be one of (8, 16, 32, 64, 128, 256, 320, 512).",
        "rollouts ignore what the vision tower learned",
    ),
    cause="vLLM loads an adapter up to vllm_max_lora_rank, and of the language model only.",
)
def _vllm_adapter(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not (args.use_vllm and args.vllm_enable_lora) or run.full:
        return
    room = args.vllm_max_lora_rank or 16
    holding = next((each for each in _ADAPTER_ROOMS if each >= args.lora_rank), None)
    if args.lora_rank > room or room not in _ADAPTER_ROOMS:
        rooms = ", ".join(map(str, _ADAPTER_ROOMS))
        what = f"vLLM has room for ranks of {rooms}, and here for {room}; the adapter's is {args.lora_rank}"
        fix = f"--vllm_max_lora_rank {holding}" if holding else "--vllm_enable_lora false"
        yield Problem(what, f"--vllm_max_lora_rank {room}", fix)
    if run.trains_vision:
        what = "vLLM loads no adapter of the vision tower or aligner, so rollouts would not be the policy's"
        fix = "--vllm_enable_lora false, or --freeze_vit true --freeze_aligner true"
        yield Problem(what, "--vllm_enable_lora true", fix)


fault(
    "stale-image-features",
    WARNING,
    lambda run: (
        run.arguments.use_vllm and run.trains_vision and is_harmed(run, "F32") and run.versions["vllm"]
    ),
    "vLLM {} keeps image features over a weight sync, and the tower is trained",
    "--freeze_vit false",
    DEFECTS["F32"].fix,
    symptoms="rollouts of images that come again do not follow a vision tower that is trained",
    cause="vLLM finds features by the image alone; ms-swift drops them at a sync from vLLM 0.16 on.",
    defect=DEFECTS["F32"],
)
