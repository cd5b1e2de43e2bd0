"""Variables and the script itself."""

import re
from collections.abc import Iterator

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.launch.script import DOLLAR
from swift_grpo_ext.doctor.check.rules.table import anywhere, rule, variable
from swift_grpo_ext.errors import nearest
from swift_grpo_ext.findings import ERROR, WARNING, Problem
from swift_grpo_ext.settings import PREFIX, Settings

# What ms-swift, its templates and launchers read.
_READ = """
    ACCELERATE_USE_FSDP ASCEND_RT_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
    CUDA_VISIBLE_DEVICES CUDA_HOME DS_ACCELERATOR ENABLE_AUDIO_OUTPUT FORCE_TORCHRUN FPS FPS_MAX_FRAMES
    FPS_MIN_FRAMES HF_ENDPOINT HF_HOME HF_HUB_OFFLINE HF_TOKEN IMAGE_FACTOR IMAGE_MAX_TOKEN_NUM
    IMAGE_MIN_TOKEN_NUM INPUT_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOG_LEVEL MASTER_ADDR MASTER_PORT MAX_NUM
    MAX_PARTITION MAX_PIXELS MAX_RATIO MIN_PIXELS MODELSCOPE_API_TOKEN MODELSCOPE_CACHE NCCL_DEBUG
    NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_IB_TIMEOUT NCCL_P2P_DISABLE NCCL_SOCKET_IFNAME
    NFRAMES NNODES NODE_RANK NPROC_PER_NODE OMP_NUM_THREADS PYTHONPATH PYTORCH_ALLOC_CONF
    PYTORCH_CUDA_ALLOC_CONF QWENVL_BBOX_FORMAT RANK ROOT_IMAGE_DIR SPATIAL_MERGE_SIZE SWANLAB_API_KEY
    SWIFT_DEBUG SWIFT_TIMEOUT SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE TOKENIZERS_PARALLELISM
    TORCH_NCCL_AVOID_RECORD_STREAMS TRANSFORMERS_OFFLINE USE_HF VIDEO_MAX_NUM VIDEO_MAX_PIXELS
    VIDEO_MAX_TOKEN_NUM VIDEO_MIN_PIXELS VIDEO_MIN_TOKEN_NUM VIDEO_TOTAL_PIXELS VLLM_USE_V1
    VLLM_WORKER_MULTIPROC_METHOD WANDB_API_KEY WANDB_MODE WANDB_PROJECT WORLD_SIZE
    """
# Names close to these that mean something else.
_ALIKE = """
    NODES NUM_NODES NODE_NUM MODE_RANK MAX_PIXEL_VALUE HOME HOSTNAME RANKS MUSA_VISIBLE_DEVICES
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ASCEND_VISIBLE_DEVICES HCCL_SOCKET_IFNAME
    GLOO_SOCKET_IFNAME MCCL_SOCKET_IFNAME NCCL_IBEXT_DISABLE NCCL_TIMEOUT PYTORCH_NPU_ALLOC_CONF
    PYTORCH_HIP_ALLOC_CONF PYTORCH_MUSA_ALLOC_CONF MKL_NUM_THREADS TBB_NUM_THREADS OPENBLAS_NUM_THREADS
    NUMEXPR_NUM_THREADS
    """
KNOWN = frozenset(_READ.split())
_OTHERS = frozenset(_ALIKE.split())


def _cuts(run: Run, *reasons: str) -> Iterator[Problem]:
    """Places where the shell reads something else than was meant, for some of the reasons."""
    for cut in run.launch.cuts:
        if cut.reason in reasons:
            what, fix = (text.format(cut) for text in _CUTS[cut.reason])
            yield Problem(what, f"line {cut.line}", fix)


# A blank of a web page beside an option.
_INVISIBLE = re.compile("--[\\w-]+([{0}])|([{0}])-".format("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff"))
_LOST = ", the options below it are lost"
_CUTS = {
    "comment": ("the shell ends the command here: {0.text:.60}", "move the comment above the command"),
    "assignment": ("a blank stands beside the = of {0.text}", "{0.text}"),
    "space": (f"a blank stands behind the backslash{_LOST}", "sed -i '{0.line}s/ *$//' on the script"),
    "blank": (f"an empty line ends the command{_LOST}", "sed -i '{0.line}d' on the script"),
    "backslash": (f"the line ends without a backslash{_LOST}", "sed -i '{0.line}s/$/ \\\\/' on the script"),
}


@rule(
    "comment-cuts-command",
    ERROR,
    symptoms=(
        "--num_generations: command not found",
        "arguments after a comment have no effect",
    ),
    cause="A # in a command continued by backslashes ends it; the lines below run as commands of their own.",
    scope=anywhere,
)
def _comment(run: Run) -> Iterator[Problem]:
    yield from _cuts(run, "comment")


@rule(
    "blank-beside-equals",
    ERROR,
    symptoms=(
        "0,1: command not found",
        "CUDA_VISIBLE_DEVICES is empty, no GPU is seen",
    ),
    cause="The shell takes NAME= value for an empty variable and a command called value.",
    scope=anywhere,
)
def _blank(run: Run) -> Iterator[Problem]:
    yield from _cuts(run, "assignment")


@rule(
    "line-cuts-command",
    ERROR,
    symptoms=(
        "--num_generations: command not found",
        "arguments below a certain line have no effect",
    ),
    cause="A command goes on in the next line only if the backslash is the very last character of its line.",
    scope=anywhere,
)
def _line(run: Run) -> Iterator[Problem]:
    yield from _cuts(run, "space", "blank", "backslash")
    for sign in _INVISIBLE.finditer(run.launch.text):
        what = f"the invisible character U+{ord(sign[1] or sign[2]):04X} stands beside an option"
        line = run.launch.text.count("\n", 0, sign.start()) + 1
        yield Problem(what, f"line {line}", "type the blanks of this line again")
    if run.launch.windows:
        what = "lines end as on Windows: no backslash is the last sign, last values get a carriage return"
        yield Problem(what, "", "dos2unix, or sed -i 's/\\r$//' on the script")


@rule(
    "shell-syntax",
    ERROR,
    symptoms=(
        "unexpected EOF while looking for matching `''",
        "syntax error near unexpected token",
    ),
    cause="The shell cannot read the script to its end: a quote or a bracket is open.",
    scope=anywhere,
)
def _syntax(run: Run) -> Iterator[Problem]:
    if run.launch.refusal and not run.launch.windows:
        where, _, what = run.launch.refusal.rpartition(": ")
        yield Problem(f"the shell refuses the script: {what}", where, "close the quote or bracket")


@rule(
    "variable-in-single-quotes",
    ERROR,
    symptoms="FileNotFoundError: '$DATA/train.jsonl', or invalid int value: '$N'",
    cause="Between single quotes the shell fills in no variable.",
    scope=anywhere,
)
def _literal(run: Run) -> Iterator[Problem]:
    for name in dict.fromkeys(run.launch.literal):
        yield Problem(f"${name} stands in single quotes, so it stays as it is written", name, f'"${name}"')


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
    for name in sorted(run.command.unexported):
        if name in KNOWN or name.startswith(PREFIX):
            yield variable(name, f"swift does not see {name}", "..., or put it before the command")


@rule(
    "mistyped-variable",
    WARNING,
    symptoms=(
        "MAX_PIXELS has no effect, images take thousands of tokens",
        "only one GPU is used",
    ),
    cause="Nobody reads a misspelled variable, and nobody complains.",
    scope=anywhere,
)
def _mistyped(run: Run) -> Iterator[Problem]:
    variables = {*KNOWN, *(PREFIX + name.upper() for name in Settings.model_fields)}
    for name in sorted(run.launch.names.difference(DOLLAR.findall(run.launch.text))):
        if name in variables or name in _OTHERS or len(name) < 3:
            continue
        close = nearest(name.upper(), variables, cutoff=0.86)
        if close and (name.upper() != close or name != name.upper()):
            yield Problem(f"{name} is not a known variable", name, f"export {close}=..., if that is meant")
        elif name.upper().startswith(PREFIX):
            yield Problem(f"{name} is not a setting of this package", name, f"unset {name}")


@rule(
    "launcher-of-swift",
    ERROR,
    symptoms=(
        "No module named swift.__main__; 'swift' is a package and cannot be directly executed",
        "can't open file 'swift': [Errno 2] No such file or directory",
    ),
    cause=(
        "A launcher takes a module of Python or a file, and `swift` is a command; the package "
        "itself cannot be run."
    ),
    scope=anywhere,
)
def _launcher(run: Run) -> Iterator[Problem]:
    *before, last = ("", *run.command.launcher)
    if last != "swift":
        return
    if before[-1:] == ["-m"]:
        yield Problem("the package swift cannot be run as a module", "-m swift", "-m swift.cli.rlhf")
    for program in _MODULE_OPTIONS.keys() & set(before):
        what = f"{program} looks for a script called swift, which is a command"
        fix = f"{program} ... {_MODULE_OPTIONS[program]} swift.cli.rlhf --rlhf_type grpo ..."
        yield Problem(what, program, fix)


_MODULE_OPTIONS = {"torchrun": "-m", "deepspeed": "--module"}
