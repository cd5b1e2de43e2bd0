"""The launch itself: the words, the variables, the ranks, the files that it names, the server beside it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from swift_grpo_ext.doctor.check.facts import environment, model
from swift_grpo_ext.doctor.check.facts.files import drawn
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import anywhere, fault, option, rule, variable
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.findings import ERROR, WARNING, NotKnownError, Problem
from swift_grpo_ext.settings import PREFIX
from swift_grpo_ext.versions import package_facts

# What ms-swift's GRPO imports whatever is trained, of releases that pip does not hold together.
_IMPORTED = ("trl", "msgspec", "torchvision")
# Variables that people set on a line of their own, and that have no effect there.
_READ = re.compile(
    f"{PREFIX}.*|NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT|(CUDA|ASCEND_RT)_VISIBLE_DEVICES|MAX_PIXELS"
    "|MIN_PIXELS|(IMAGE|VIDEO)_M(AX|IN)_.*|VIDEO_TOTAL_PIXELS|FPS.*|NCCL_.*|PYTORCH_.*ALLOC_CONF|ROOT_IMAGE_DIR|USE_HF"
    "|(WANDB|SWANLAB)_API_KEY|VLLM_.*|HF_(ENDPOINT|HOME|TOKEN)|MODELSCOPE_CACHE"
)
# A blank of a web page beside an option.
_INVISIBLE = re.compile("--[\\w-]+([{0}])|([{0}])-".format("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff"))
_FILES = (
    "system",
    "external_plugins",
    "custom_register_path",
    "custom_dataset_info",
    "dataset",
    "val_dataset",
)
_CHECKPOINTS = ("adapters", "ref_adapters", "resume_from_checkpoint")
_MODELS = ("model", "ref_model", "reward_model", "teacher_model")
_HERE = ("/", "./", "../", "~")


@rule(
    "args-refused",
    ERROR,
    symptoms=(
        "ValueError: remaining_argv: [...]",
        "error: argument --...: invalid choice",
        "error: argument --...: expected one argument",
        "error: argument --...: invalid int value",
    ),
    cause="ms-swift's parser does not know the argument or its value; names changed between releases.",
    scope=anywhere,
)
def _args_refused(run: Run) -> Iterable[Problem]:
    return run.arguments.refusals


fault(
    "no-such-command",
    ERROR,
    lambda run: run.command.subcommand == "grpo",
    "ms-swift has no command `swift grpo`",
    "swift grpo",
    "swift rlhf --rlhf_type grpo",
    symptoms="KeyError: 'grpo', from `swift grpo`",
    cause="GRPO is a type of `swift rlhf`.",
    reports="https://github.com/modelscope/ms-swift/issues/5160",
    scope=anywhere,
)
fault(
    "ranks-not-started",
    ERROR,
    lambda run: run.command.is_single and environment.number(run.environ, "NPROC_PER_NODE") > 1,
    "python starts one process, and nothing reads NPROC_PER_NODE",
    "NPROC_PER_NODE",
    "swift rlhf ..., or torchrun --nproc_per_node in place of python",
    symptoms="one GPU is used although NPROC_PER_NODE is set, with python -m swift.cli.rlhf",
    cause="NPROC_PER_NODE is read by the command `swift`, which starts torchrun; a module is one process.",
    reports="https://github.com/modelscope/ms-swift/issues/4275",
    scope=anywhere,
)


@rule(
    "line-cuts-command",
    ERROR,
    symptoms=(
        "--num_generations: command not found",
        "arguments below a certain line, or after a comment, have no effect",
    ),
    cause="A command goes on in the next line only if the backslash is the very last character of its line, "
    "and a # in between ends it; the lines below run as commands of their own.",
    scope=anywhere,
)
def _line(run: Run) -> Iterator[Problem]:
    for line in run.launch.cuts:
        what = "the command above is cut off: a comment, an empty line, a blank behind a backslash, or none"
        fix = "end every line but the last with a backslash, and comment above the command"
        yield Problem(what, f"line {line}", fix)
    for sign in _INVISIBLE.finditer(run.launch.text):
        what = f"the invisible character U+{ord(sign[1] or sign[2]):04X} stands beside an option"
        line = run.launch.text.count("\n", 0, sign.start()) + 1
        yield Problem(what, f"line {line}", "type the blanks of this line again")
    if "\r\n" in run.launch.text:
        what = "lines end as on Windows: no backslash is the last sign, last values get a carriage return"
        yield Problem(what, "", "dos2unix, or sed -i 's/\\r$//' on the script")


@rule(
    "variable-not-exported",
    WARNING,
    symptoms=(
        "NPROC_PER_NODE has no effect, one process is started",
        "MAX_PIXELS has no effect",
    ),
    cause="A variable set on a line of its own stays in the shell unless it is exported.",
    scope=anywhere,
)
def _unexported(run: Run) -> Iterator[Problem]:
    for name in filter(_READ.fullmatch, sorted(run.command.unexported)):
        yield variable(name, f"swift does not see {name}", "..., or put it before the command")


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
    if by_script and text in ("", "-1") and not run.arguments.values.get("use_cpu"):
        yield variable(name, "no GPU is named, so none is seen", "0")
        return
    visible = environment.devices(run.environ)
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
    "packages",
    ERROR,
    symptoms=(
        "ImportError: trl>=0.26 is required",
        "Your current version of `trl` is outdated.",
        "ModuleNotFoundError: No module named 'msgspec'",
        "RuntimeError: operator torchvision::nms does not exist",
        "Could not import module 'BloomPreTrainedModel'",
        "seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'",
    ),
    cause=(
        "ms-swift's GRPO is made of trl's, a torchvision is built for one torch, and msgspec is imported "
        "without being declared: releases that do not fit fail far from their cause."
    ),
    reports=("A7", "B12"),
    scope=anywhere,
)
def _packages(run: Run) -> Iterator[Problem]:
    for fact in package_facts():
        if fact.problem and fact.name in _IMPORTED:
            yield Problem(fact.problem, fact.name, fact.fix)


@rule(
    "missing-file",
    ERROR,
    symptoms="FileNotFoundError, or a dataset is looked up on a hub",
    cause="A path that does not exist is taken for a hub id.",
    scope=anywhere,
)
def _missing(run: Run) -> Iterator[Problem]:
    for name, path in _absent(run, (*_FILES, *_CHECKPOINTS)):
        fix = "check the path"
        if "," in path or " " in path.strip():
            fix = f"separate names by blanks, without quotes around them: {path.replace(',', ' ')}"
        yield Problem(f"{path} not found", f"--{name}", fix)


@rule(
    "model-not-here",
    WARNING,
    symptoms=(
        "ValueError: path: '...' not found",
        "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
    ),
    cause="A model folder that does not exist is refused, or looked up on a hub.",
    scope=anywhere,
)
def _no_model_files(run: Run) -> Iterator[Problem]:
    for name, path in _absent(run, _MODELS):
        is_path = "/" in path
        fix = (
            "check the path, or download it"
            if is_path
            else "a hub's id has an owner: Qwen/..., or check the path"
        )
        yield Problem(f"{path} is not on this machine", f"--{name}", fix)


def _absent(run: Run, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Paths that arguments name, with the argument, where nothing is and nothing will be.

    Raises:
        NotKnownError: a program of the script may write it, or the script changes its folder.
    """
    # Another command of ms-swift that comes first may write a checkpoint.
    is_second = bool(run.launch.commands) and run.launch.commands[0] is not run.command
    for name in filter(run.arguments.is_known, names):
        value = run.arguments.get(name)
        for word in value if isinstance(value, list) else [value]:
            path = drawn(word)[0] if word and name in ("dataset", "val_dataset") else word
            if not isinstance(path, str) or not _is_path(name, path) or run.find(path) is not None:
                continue
            if is_second and name not in _FILES:
                continue
            if run.command.moved or run.command.makes_files:
                why = "behind a cd" if run.command.moved else "which the script may write"
                raise NotKnownError(f"{path:.60}, {why}")
            yield name, path


def _is_path(name: str, word: str) -> bool:
    """Whether a word of an argument can only be a path; checkpoints of a run are called by their steps."""
    match name:
        case "system":
            return word.endswith(".txt")
        case "dataset" | "val_dataset":
            return word.startswith(_HERE) or word.endswith((".jsonl", ".json", ".csv", ".parquet"))
        case "external_plugins" | "custom_register_path" | "custom_dataset_info":
            return word != PLUGIN and not word.lstrip().startswith(("{", "["))
        case "resume_from_checkpoint":
            return bool(word)
    is_checkpoint = re.fullmatch(r"checkpoint-\d+", word.rsplit("/", 1)[-1]) is not None
    has_no_owner = word.split(":")[0].count("/") != 1
    return bool(word) and (has_no_owner or word.startswith(_HERE) or is_checkpoint)


@rule(
    "server-args-refused",
    ERROR,
    symptoms="ValueError: remaining_argv: [...], from swift rollout",
    cause="swift rollout knows the arguments of an engine, not those of training.",
    scope=anywhere,
)
def _server_args(run: Run) -> Iterator[Problem]:
    for server in run.servers:
        for refusal in server.refusals:
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
    args = run.arguments
    if run.launch.all("deploy") and not run.servers and args.vllm_mode == "server":
        yield Problem("swift deploy takes no new weights", "swift deploy", "swift rollout")
    server = run.own_server
    if server is None:
        return
    port, served = server.port, server.model
    ports = args.vllm_server_port or [8000]
    if args.vllm_server_host and port not in ports:
        what = f"the server listens at port {port}, the trainer asks {', '.join(map(str, ports))}"
        yield option("vllm_server_port", what, port)
    theirs, ours = model.shape(str(served)), model.shape(run.model)
    if theirs and ours and theirs.linears != ours.linears:
        yield option("model", f"the server serves {served}, the trainer trains {args.model}", served)


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
        yield Problem("the server has no address", "--vllm_server_host", "--vllm_server_host 127.0.0.1")
    elif has_address and not serves:
        what = "with a server's address the start waits for that server, whatever the mode"
        yield Problem(what, "--vllm_server_host", "--use_vllm true --vllm_mode server, or no address")
