"""Variables and the script itself."""

import re
from collections.abc import Iterator

from swift_grpo_ext.doctor.check.facts.run import Run
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
DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)")
KNOWN = frozenset(_READ.split())
_OTHERS = frozenset(_ALIKE.split())

# A blank of a web page beside an option.
_INVISIBLE = re.compile("--[\\w-]+([{0}])|([{0}])-".format("\u00a0\u200b\u200c\u200d\u2060\u3000\ufeff"))


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
    "variable-in-single-quotes",
    ERROR,
    symptoms="FileNotFoundError: '$DATA/train.jsonl', or invalid int value: '$N'",
    cause="Between single quotes the shell fills in no variable.",
    scope=anywhere,
)
def _literal(run: Run) -> Iterator[Problem]:
    words = " ".join(word for word in run.command.arguments if isinstance(word, str))
    for name in run.launch.names.intersection(DOLLAR.findall(words)):
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
