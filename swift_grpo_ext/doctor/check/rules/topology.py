"""Where processes run: devices, nodes, the rollout server beside the trainer; and the rollout engine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from swift_grpo_ext.doctor.check.arguments import parse
from swift_grpo_ext.doctor.check.files import CONFIG_SUFFIXES
from swift_grpo_ext.doctor.check.launch import Command
from swift_grpo_ext.doctor.check.rules.table import divisors, nearest_of, option, table, variable
from swift_grpo_ext.doctor.check.run import Run, model_shape
from swift_grpo_ext.findings import Problem

_HERE = ("127.0.0.1", "localhost", "0.0.0.0")


@table.on("devices-and-ranks")
def _devices(run: Run) -> Iterator[Problem]:
    visible = devices(run.environ)
    text = run.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    # Said by the script, and not by the machine that checks it.
    if not text and run.launch.commands and "CUDA_VISIBLE_DEVICES" in run.launch.names:
        yield variable("CUDA_VISIBLE_DEVICES", "no GPU is named, so none is seen", "0")
    if re.search(r"\d[\s;:]+\d", text) or len(set(visible)) < len(visible):
        what = f"{text} is not a list of different GPUs: CUDA stops reading at the fault"
        yield variable("CUDA_VISIBLE_DEVICES", what, ",".join(dict.fromkeys(re.findall(r"[0-9]+", text))))
        return
    if not visible:
        return
    ranks, gpus, what = run.ranks_per_node, len(visible), ""
    if ranks > gpus:
        what = f"{ranks} ranks for {gpus} visible GPUs"
    elif gpus // ranks >= 2 and (run.arguments.use_vllm or run.arguments.deepspeed):
        what = f"{gpus} visible GPUs for {ranks} rank{'s' * (ranks > 1)} spread the model"
    if what:
        yield Problem(what, "NPROC_PER_NODE", f"NPROC_PER_NODE={gpus}")


@table.on("nodes-without-address")
def _nodes(run: Run) -> Iterator[Problem]:
    if run.nodes < 2 or "RANK" in run.environ:
        return
    for name, example in (("MASTER_ADDR", "the first node's address"), ("NODE_RANK", "0, 1, ... by node")):
        if not run.environ.get(name):
            yield variable(name, f"{run.nodes} nodes and no {name}", example)
    rank = run.environ.get("NODE_RANK", "")
    if not rank.isdecimal():
        return
    if int(rank) > 0 and run.environ.get("MASTER_ADDR") in _HERE:
        what = f"node {rank} looks for the first node at {run.environ['MASTER_ADDR']}, which is itself"
        yield Problem(what, "MASTER_ADDR", "the address of the first node, on every node")
    if int(rank) >= run.nodes:
        what = f"NODE_RANK {rank} of {run.nodes} nodes: they are counted from 0"
        yield variable("NODE_RANK", what, run.nodes - 1)


@table.on("server-shares-gpus")
def _shared(run: Run) -> Iterator[Problem]:
    hosts = run.arguments.vllm_server_host or []
    if not run.servers or run.arguments.vllm_mode != "server" or not all(host in _HERE for host in hosts):
        return
    server = run.servers[0]
    needed = _size(server, "vllm_tensor_parallel_size") * _size(server, "vllm_data_parallel_size")
    theirs = devices(server.environ)
    ours = devices(run.environ) or [str(number) for number in range(run.ranks_per_node)]
    both = sorted(set(ours) & set(theirs or [str(number) for number in range(needed)]))
    if both:
        what = f"trainer and server both take GPU {', '.join(both)}"
        yield Problem(what, "CUDA_VISIBLE_DEVICES", "give each its own, in both commands")
    if theirs and needed > len(theirs):
        what = f"the server needs {needed} GPUs and sees {len(theirs)}"
        yield Problem(what, "swift rollout", "more GPUs, or less parallel")


def devices(environ: Mapping[str, str]) -> list[str]:
    """Visible GPUs by number; empty if it is not said, or not in numbers."""
    names = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names if all(name.isdecimal() for name in names) else []


def _size(command: Command, name: str) -> int:
    value = command.value(name)
    return int(value) if value.isdecimal() else 1


@table.on("server-args-refused")
def _server_args(run: Run) -> Iterator[Problem]:
    for server in run.servers:
        if server.arguments[:1] and server.arguments[0].endswith(CONFIG_SUFFIXES):
            continue  # its arguments are in a file
        for refusal in parse(server.arguments, "RolloutArguments").refusals:
            yield replace(refusal, where=f"swift rollout {refusal.where}".strip())


@table.on("server-never-ends")
def _never_ends(run: Run) -> Iterator[Problem]:
    commands = run.launch.commands
    for command in commands[: commands.index(run.command) if run.command in commands else 0]:
        if command.subcommand in ("rollout", "deploy") and command.waits:
            name = f"swift {command.subcommand}"
            what = f"{name} never ends, so nothing below it in this script is started"
            yield Problem(what, name, f"{name} ... &, or a script of its own")


@table.on("server-differs")
def _server(run: Run) -> Iterator[Problem]:
    servers = run.servers
    if not servers and run.launch.first("deploy") and run.arguments.vllm_mode == "server":
        yield Problem("swift deploy takes no new weights", "swift deploy", "swift rollout")
    if len(servers) != 1 or run.arguments.vllm_mode != "server":
        return
    ports, port = run.arguments.vllm_server_port or [8000], servers[0].value("port") or "8000"
    hosts = run.arguments.vllm_server_host or []
    if port.isdecimal() and hosts and all(host in _HERE for host in hosts) and int(port) not in ports:
        what = f"the server listens at port {port}, the trainer asks {', '.join(map(str, ports))}"
        yield option("vllm_server_port", what, port)
    theirs = model_shape(servers[0].value("model"))
    if theirs is not None and run.shape is not None and theirs.linears != run.shape.linears:
        what = f"the server serves {servers[0].value('model')}, the trainer trains {run.arguments.model}"
        yield option("model", what, servers[0].value("model"))


@table.on("vllm-tensor-parallel")
def _tensor_parallel(run: Run) -> Iterator[Problem]:
    args = run.arguments
    size = args.vllm_tensor_parallel_size
    if not (args.use_vllm and args.vllm_mode == "colocate") or size < 1:
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
