"""Where processes run: devices, nodes, the rollout server beside the trainer."""

import re
from collections.abc import Iterator
from dataclasses import replace

from swift_grpo_ext.doctor.check.facts.environment import devices
from swift_grpo_ext.doctor.check.facts.run import LOCAL, Run, model_shape
from swift_grpo_ext.doctor.check.rules.table import MOST, anywhere, option, rule, variable
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "devices-and-ranks",
    ERROR,
    symptoms=(
        "CUDA error: invalid device ordinal",
        "GRPO with vLLM is not compatible with `device_map`.",
        "DeepSpeed is not compatible with `device_map`.",
    ),
    cause=(
        "Each rank takes one of the visible GPUs; with twice as many GPUs as ranks ms-swift "
        "spreads the model over several of them, which neither vLLM nor DeepSpeed take."
    ),
)
def _devices(run: Run) -> Iterator[Problem]:
    name = "CUDA_VISIBLE_DEVICES"
    text = run.environ.get(name, "").strip()
    by_script = run.launch.commands and name in run.launch.names  # not by this machine
    if by_script and text in ("", "-1") and not run.as_written.arguments.use_cpu:
        yield variable(name, "no GPU is named, so none is seen", "0")
        return
    visible = devices(run.environ)
    if re.search(r"\d[\s;:]+\d", text) or len(set(visible)) < len(visible):
        what = f"{text} is not a list of different GPUs: CUDA stops reading at the fault"
        yield variable(name, what, ",".join(dict.fromkeys(re.findall(r"[0-9]+", text))))
        return
    ranks = run.ranks_per_node if visible else 1
    gpus = len(visible) or 1
    what = f"{ranks} ranks for {gpus} visible GPUs" if ranks > gpus else ""
    if gpus >= 2 * ranks and (run.arguments.use_vllm or run.arguments.deepspeed):
        what = f"{gpus} visible GPUs for {ranks} rank{'s' * (ranks > 1)} spread the model"
    if what:
        yield Problem(what, "NPROC_PER_NODE", f"NPROC_PER_NODE={gpus}")


@rule(
    "nodes-without-address",
    ERROR,
    symptoms="the start hangs on every node until the rendezvous times out",
    cause=(
        "Without MASTER_ADDR each node waits for the others at its own 127.0.0.1, and without "
        "NODE_RANK each takes itself for the first."
    ),
    reports="A9",
    scope=anywhere,
)
def _nodes(run: Run) -> Iterator[Problem]:
    if run.nodes < 2 or "RANK" in run.environ:
        return
    address = run.environ.get("MASTER_ADDR", "")
    rank = run.environ.get("NODE_RANK", "")
    if not address:
        yield variable("MASTER_ADDR", f"{run.nodes} nodes and no MASTER_ADDR", "the first node's address")
    if not rank:
        yield variable("NODE_RANK", f"{run.nodes} nodes and no NODE_RANK", "0, 1, ... by node")
    elif rank.isdecimal() and int(rank) >= run.nodes:
        what = f"NODE_RANK {rank} of {run.nodes} nodes: they are counted from 0"
        yield variable("NODE_RANK", what, run.nodes - 1)
    elif rank.isdecimal() and int(rank) > 0 and address in LOCAL:
        what = f"node {rank} looks for the first node at {address}, which is itself"
        yield Problem(what, "MASTER_ADDR", "the address of the first node, on every node")


@rule(
    "server-shares-gpus",
    ERROR,
    symptoms=(
        "NCCL error: Duplicate GPU detected",
        "out of memory when the trainer loads beside swift rollout",
    ),
    cause="Trainer and rollout server each fill their GPUs, and the weight sync needs them to be different.",
    scope=anywhere,
)
def _shared(run: Run) -> Iterator[Problem]:
    server = run.own_server
    if server is None:
        return
    needed = server.arguments.vllm_tensor_parallel_size * server.arguments.vllm_data_parallel_size
    of_server = devices(server.environ)
    of_trainer = devices(run.environ) or [str(number) for number in range(min(MOST, run.ranks_per_node))]
    shared = sorted(set(of_trainer) & set(of_server or [str(number) for number in range(min(MOST, needed))]))
    if shared:
        what = f"trainer and server both take GPU {', '.join(shared)}"
        yield Problem(what, "CUDA_VISIBLE_DEVICES", "give each its own, in both commands")
    if of_server and needed > len(of_server):
        what = f"the server needs {needed} GPUs and sees {len(of_server)}"
        yield Problem(what, "swift rollout", "more GPUs, or less parallel")


@rule(
    "server-args-refused",
    ERROR,
    symptoms="ValueError: remaining_argv: [...], from swift rollout",
    cause="swift rollout knows the arguments of an engine, not those of training.",
    scope=anywhere,
)
def _server_args(run: Run) -> Iterator[Problem]:
    for server in run.servers:
        for refusal in server.arguments.refusals:
            yield replace(refusal, where=f"swift rollout {refusal.where}".strip())


@rule(
    "server-never-ends",
    WARNING,
    symptoms="the script stops at `swift rollout`, training never starts",
    cause="The server runs until it is killed, and the shell starts the next command when it has ended.",
    scope=anywhere,
)
def _never_ends(run: Run) -> Iterator[Problem]:
    commands = run.launch.commands
    for command in commands[: commands.index(run.command) if run.command in commands else 0]:
        if command.subcommand in ("rollout", "deploy") and command.waits:
            name = f"swift {command.subcommand}"
            what = f"{name} never ends, so nothing below it in this script is started"
            yield Problem(what, name, f"{name} ... &, or a script of its own")


@rule(
    "server-differs",
    ERROR,
    symptoms=(
        "ConnectionError: Servers not reachable after ...s: [...]",
        "shape mismatch in the weight sync to the rollout server",
        "the server of `swift deploy` answers 404 to the trainer",
    ),
    cause="The server listens at another port than the trainer asks, or serves another model.",
)
def _server(run: Run) -> Iterator[Problem]:
    if run.launch.first("deploy") and not run.servers and run.arguments.vllm_mode == "server":
        yield Problem("swift deploy takes no new weights", "swift deploy", "swift rollout")
    if run.own_server is None or len(run.servers) > 1:
        return
    port = run.own_server.arguments.port
    model = run.own_server.arguments.model
    ports = run.arguments.vllm_server_port or [8000]
    if run.arguments.vllm_server_host and port not in ports:
        what = f"the server listens at port {port}, the trainer asks {', '.join(map(str, ports))}"
        yield option("vllm_server_port", what, port)
    served = model_shape(str(model))
    if served is not None and run.shape is not None and served.linears != run.shape.linears:
        yield option("model", f"the server serves {model}, the trainer trains {run.arguments.model}", model)


@rule(
    "servers-and-ports",
    ERROR,
    symptoms="ValueError: host and server_port must have same length when lists are provided",
    cause="Each rollout server is a host and its port, in order.",
    scope=anywhere,
)
def _ports(run: Run) -> Iterator[Problem]:
    hosts = run.arguments.vllm_server_host or []
    ports = run.arguments.vllm_server_port or [8000]
    if run.arguments.vllm_mode == "server" and hosts and len(hosts) != len(ports):
        what = f"{len(hosts)} servers and {len(ports)} ports"
        needed = [*ports, *[ports[-1]] * len(hosts)][: len(hosts)]
        yield option("vllm_server_port", what, " ".join(map(str, needed)))
