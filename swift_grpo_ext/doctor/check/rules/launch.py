"""The launch itself: its words, variables, ranks and files."""

import re
from collections.abc import Iterable, Iterator

from swift_grpo_ext.doctor.check.facts import environment, model
from swift_grpo_ext.doctor.check.facts.files import drawn
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import anywhere, fault, option, rule, variable
from swift_grpo_ext.findings import ERROR, WARNING, NotKnownError, Problem
from swift_grpo_ext.settings import PREFIX

# Variables that people set on a line of their own, and that have no effect there.
_READ = re.compile(
    f"{PREFIX}.*|NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT|(CUDA|ASCEND_RT)_VISIBLE_DEVICES|MAX_PIXELS"
    "|MIN_PIXELS|(IMAGE|VIDEO)_M(AX|IN)_.*|VIDEO_TOTAL_PIXELS|FPS.*|NCCL_.*|PYTORCH_.*ALLOC_CONF|ROOT_IMAGE_DIR|USE_HF"
    "|(WANDB|SWANLAB)_API_KEY|VLLM_.*|HF_(ENDPOINT|HOME|TOKEN)|MODELSCOPE_CACHE"
)
# An invisible space, copied from a web page, beside an option.
_INVISIBLE = re.compile(
    "--[\\w-]+[\u00a0\u200b-\u200d\u2060\u3000\ufeff]|[\u00a0\u200b-\u200d\u2060\u3000\ufeff]-"
)
# Pattern of values that are paths, not hub names or texts, by argument.
_DATA = re.compile(r"(?:/|\.\.?/|~).*|.*\.(?:jsonl|json|csv|parquet)", re.DOTALL)
_CODE = re.compile(r"(?!<swift-grpo-ext>|\s*[{\[]).+", re.DOTALL)
_WEIGHTS = re.compile(r"(?:/|\.\.?/|~).*|.*checkpoint-\d+|[^/:]+(?::.*)?|[^/:]*/[^/:]*/.*", re.DOTALL)
_MODELS = ("model", "ref_model", "reward_model", "teacher_model")
_PATHS = {
    "system": re.compile(r".*\.txt"),
    **dict.fromkeys(("external_plugins", "custom_register_path", "custom_dataset_info"), _CODE),
    **dict.fromkeys(("dataset", "val_dataset"), _DATA),
    **dict.fromkeys(("adapters", "ref_adapters", *_MODELS), _WEIGHTS),
    "resume_from_checkpoint": re.compile(".+"),
}


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
    lambda run: (
        run.command.is_single
        and not run.arguments.values.get("use_ray")  # its configuration file says how many it starts
        and environment.number(run.environ, "NPROC_PER_NODE") > 1
    ),
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
    text = run.launch.text
    for line in run.launch.cuts:
        what = "the command above is cut off: a comment, an empty line, a blank behind a backslash, or none"
        fix = "end every line but the last with a backslash, and comment above the command"
        yield Problem(what, f"line {line}", fix)
    for sign in _INVISIBLE.finditer(text):
        what = f"the invisible character {sign[0].strip('-')[-1]!a} stands beside an option"
        line = text.count("\n", 0, sign.start()) + 1
        yield Problem(what, f"line {line}", "type the blanks of this line again")
    if "\r\n" in text:
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
        # A variable that the script itself uses as $NAME, except to print it, was not meant for swift.
        if not re.search(rf"^(?!\s*(echo|printf)\b).*\$\{{?{name}\b", run.launch.text, re.MULTILINE):
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
    text = run.environ.get(name, "all").strip()
    visible = environment.devices(run.environ)
    gpus = len(visible)
    # Set by the script, not by this machine's environment, and not for the server.
    by_script = re.search(rf"""^[^#\n]*{name}=(''|""|-1)?(?=\s|$)""", run.launch.text, re.MULTILINE)
    fix = f"NPROC_PER_NODE={gpus}"
    if by_script and text in ("", "-1") and not run.arguments.values.get("use_cpu"):
        yield variable(name, "it names no GPU, so none is visible", "0")
    elif re.search(r"\d[\s;:]+\d", text) or len(set(visible)) < gpus:
        what = f"{text} is not a list of different GPUs: CUDA stops reading at the fault"
        yield variable(name, what, ",".join(dict.fromkeys(re.findall("[0-9]+", text))))
    elif gpus and (ranks := run.ranks_per_node) > gpus:
        yield Problem(f"{ranks} ranks for {gpus} visible GPUs", "NPROC_PER_NODE", fix)
    elif gpus and gpus >= 2 * ranks and (run.arguments.use_vllm or run.arguments.deepspeed):
        yield Problem(f"{gpus} visible GPUs for {ranks} ranks spread the model", "NPROC_PER_NODE", fix)


@rule(
    "missing-file",
    ERROR,
    symptoms=(
        "FileNotFoundError, or a dataset is looked up on a hub",
        "ValueError: path: '...' not found",
        "HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name'",
    ),
    cause="A path that does not exist is refused, or taken for a hub id.",
    scope=anywhere,
)
def _missing(run: Run) -> Iterator[Problem]:
    for name, path in _absent(run):
        if name in _MODELS:
            fix = "check the path, or download it; a hub's id has an owner: Qwen/..."
            yield Problem(f"{path} is not on this machine", f"--{name}", fix, WARNING)
        else:
            fix = "check the path; several stand apart by blanks, without quotes around them"
            yield Problem(f"{path} not found", f"--{name}", fix)


def _absent(run: Run) -> Iterator[tuple[str, str]]:
    """Pairs of an argument and its path, for paths that do not exist and will not be created.

    Raises:
        NotKnownError: a program of the script may write it, or the script changes the working folder.
    """
    for name in filter(run.arguments.is_known, _PATHS):
        value = run.arguments.get(name)
        for word in value if isinstance(value, list) else [value] if value else []:
            path = drawn(str(word)) if _PATHS[name] is _DATA else str(word)
            if not _PATHS[name].fullmatch(path) or run.find(path) is not None:
                continue
            if not run.command.folders or run.command.makes_files:
                why = "which the script may write" if run.command.folders else "behind a cd"
                raise NotKnownError(f"{path:.60}, {why}")
            yield name, path


@rule(
    "server-differs",
    ERROR,
    symptoms=(
        "ConnectionError: Servers not reachable after ...s: [...]",
        "shape mismatch in the weight sync to the rollout server",
    ),
    cause="The server listens at another port than the trainer asks, or serves another model.",
)
def _server(run: Run) -> Iterator[Problem]:
    args, server = run.arguments, run.own_server
    if server is None:
        return
    ports = args.vllm_server_port or [8000]
    if args.vllm_server_host and server.port not in ports:
        what = f"the server listens at port {server.port}, the trainer asks {', '.join(map(str, ports))}"
        yield option("vllm_server_port", what, server.port)
    theirs, ours = model.shape(str(server.model)), model.shape(run.model)
    if theirs and ours and theirs.total != ours.total:
        what = f"the server serves {server.model}, the trainer trains {args.model}"
        yield option("model", what, server.model)
