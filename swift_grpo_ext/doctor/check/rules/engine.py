"""The rollout engine: modes, tensor parallelism, lengths, memory."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import nearest_of, option, table, variable
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem


@table.on("vllm-tensor-parallel")
def _tensor_parallel(run: Run) -> Iterator[Problem]:
    args = run.arguments
    size = args.vllm_tensor_parallel_size
    if not (args.use_vllm and args.vllm_mode == "colocate") or size < 1:
        return
    valid = [number for number in range(1, run.ranks_per_node + 1) if run.ranks_per_node % number == 0]
    what = ""
    if run.ranks % size or size > run.ranks_per_node:
        what = f"{run.ranks} ranks on {run.nodes} nodes cannot be cut into engines of {size}"
    elif run.shape and run.shape.heads % size:
        what = f"{run.shape.heads} attention heads cannot be split over {size} GPUs"
        valid = [number for number in valid if run.shape.heads % number == 0]
    if what:
        yield option("vllm_tensor_parallel_size", what, nearest_of(valid, size))


@table.on("vllm-model-len")
def _model_len(run: Run) -> Iterator[Problem]:
    args, limit = run.arguments, _engine_limit(run)
    if limit is None:
        return
    image = _image_tokens(run) if run.limits_pixels else 0
    prompt = min(image, args.max_length or image)
    if limit <= args.max_completion_length + prompt:
        holds = f"an image of up to {prompt} tokens and " if prompt else "the prompt beside "
        what = f"{limit} tokens do not hold {holds}a completion of {args.max_completion_length}, which is cut"
        needed = -(-(args.max_completion_length + prompt + 256) // 256) * 256
        yield option("vllm_max_model_len", what, f"{needed}{', or lower MAX_PIXELS' if prompt else ''}")


@table.on("vllm-no-room")
def _no_room(run: Run) -> Iterator[Problem]:
    limit, vision = _engine_limit(run), run.shape.vision if run.shape else None
    least = run.environ.get("MIN_PIXELS", "")
    if limit is None or not vision or vision.tile or not least.isdecimal():
        return
    image = vision.tokens(int(least))
    if image >= limit:
        what = f"an image of at least {least} pixels is {image} tokens, the engine takes {limit}"
        yield option("vllm_max_model_len", what, 2 * image)


def _image_tokens(run: Run) -> int:
    return run.shape.vision.tokens(run.max_pixels) if run.shape and run.shape.vision else 0


@table.on("pixels-not-limited")
def _unlimited(run: Run) -> Iterator[Problem]:
    limit, image = _engine_limit(run), _image_tokens(run)
    room = (limit or 0) - run.arguments.max_completion_length
    if limit and not run.limits_pixels and 0 < room <= image:
        what = f"an image may take {image} tokens, the engine leaves {room} for the prompt"
        yield variable("MAX_PIXELS", what, "1003520, or less")


def _engine_limit(run: Run) -> int | None:
    """vllm_max_model_len of the engine, colocated or of the server that the same script starts."""
    if not run.arguments.use_vllm or run.arguments.vllm_mode != "server":
        return run.arguments.vllm_max_model_len if run.arguments.use_vllm else None
    value = run.servers[0].value("vllm_max_model_len") if run.servers else ""
    return int(value) if value.isdecimal() else None


@table.on("vllm-family")
def _family(run: Run) -> Iterator[Problem]:
    reason = run.facts.lacks.get("vllm") if run.facts else None
    if run.arguments.use_vllm and reason:
        yield Problem(reason, "--use_vllm true", "--use_vllm false")


@table.on("pixels-of-the-server")
def _server_pixels(run: Run) -> Iterator[Problem]:
    if not run.servers or not run.arguments.use_vllm:
        return
    server = run.servers[0]
    for name in ("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM"):
        ours, theirs = run.environ.get(name), server.environ.get(name)
        if name == "MAX_PIXELS":
            ours = ours or (str(run.arguments.max_pixels) if run.arguments.max_pixels else None)
            theirs = theirs or server.value("max_pixels") or None
        if ours != theirs:
            what = f"{name} is {ours or 'unset'} for the trainer and {theirs or 'unset'} for swift rollout"
            yield variable(name, what, f"{ours or theirs}, before both commands")


@table.on("vllm-adapter")
def _vllm_adapter(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not (args.use_vllm and args.vllm_enable_lora) or run.full:
        return
    if args.lora_rank > (args.vllm_max_lora_rank or 16):
        what = f"rank {args.lora_rank} exceeds vLLM's {args.vllm_max_lora_rank}"
        yield option("vllm_max_lora_rank", what, args.lora_rank)
    if args.freeze_vit is False or args.freeze_aligner is False:
        what = "vLLM loads no adapter of the vision tower or aligner, so rollouts would not be the policy's"
        fix = "--vllm_enable_lora false, or --freeze_vit true --freeze_aligner true"
        yield Problem(what, "--vllm_enable_lora true", fix)
