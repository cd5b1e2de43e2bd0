"""Variables and the script itself."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from swift_grpo_ext.doctor.check.launch import PLUGIN
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem, Severity
from swift_grpo_ext.settings import PREFIX, Settings

# Variables that the host, its templates and launchers read.
_NAMES = """
    MAX_PIXELS MIN_PIXELS VIDEO_MAX_PIXELS VIDEO_MIN_PIXELS VIDEO_TOTAL_PIXELS FPS FPS_MAX_FRAMES
    FPS_MIN_FRAMES IMAGE_FACTOR MAX_RATIO IMAGE_MAX_TOKEN_NUM IMAGE_MIN_TOKEN_NUM NPROC_PER_NODE
    NNODES NODE_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES USE_HF HF_ENDPOINT HF_HUB_OFFLINE
    MODELSCOPE_CACHE OMP_NUM_THREADS PYTORCH_CUDA_ALLOC_CONF NCCL_DEBUG NCCL_IB_DISABLE
    NCCL_P2P_DISABLE NCCL_SOCKET_IFNAME TORCH_NCCL_AVOID_RECORD_STREAMS WANDB_API_KEY WANDB_PROJECT
    SWANLAB_API_KEY SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE DS_ACCELERATOR VLLM_USE_V1
    TOKENIZERS_PARALLELISM MAX_NUM INPUT_SIZE
    """
KNOWN = frozenset(_NAMES.split())


@table.rule(
    "comment-cuts-command",
    Severity.ERROR,
    symptoms=("--num_generations: command not found", "arguments after a comment have no effect"),
    cause="A # in a command continued by backslashes ends it; the lines below run as commands of their own.",
)
def _comment(run: Run) -> Iterator[Problem]:
    for number, line in run.launch.cut if run.launch else ():
        yield Problem(
            f"the shell ends the command here: {line:.60}",
            f"line {number}",
            "move the comment above the command",
        )


@table.rule(
    "mistyped-variable",
    Severity.WARNING,
    symptoms=("MAX_PIXELS has no effect, images take thousands of tokens", "only one GPU is used"),
    cause="Nobody reads a misspelled variable, and nobody complains.",
)
def _mistyped(run: Run) -> Iterator[Problem]:
    known = {*KNOWN, *(PREFIX + name.upper() for name in Settings.model_fields)}
    for name in run.environ:
        if name in known or len(name) < 3:
            continue
        nearest = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.86)
        if nearest and (name.upper() != nearest[0] or name != name.upper()):
            yield Problem(f"nobody reads {name}", name, f"did you mean {nearest[0]}?")
        elif name.upper().startswith(PREFIX):
            yield Problem(f"no setting is called {name}", name, "see swift-grpo-ext env")


@table.rule(
    "missing-file",
    Severity.ERROR,
    symptoms="FileNotFoundError, or a dataset is looked up on a hub",
    cause="A path that does not exist is taken for a hub id.",
)
def _missing(run: Run) -> Iterator[Problem]:
    args = run.arguments
    files = [("--external_plugins", file) for file in args.external_plugins or [] if file != PLUGIN]
    files += [("--dataset", _path(name)) for name in args.dataset or [] if _looks_local(name)]
    files += [("--val_dataset", _path(name)) for name in args.val_dataset or [] if _looks_local(name)]
    for flag, name in files:
        if "$" not in name and not (run.folder / Path(name).expanduser()).exists():
            yield Problem(f"{name} is not there", flag, "check the path")


@table.rule(
    "no-dataset",
    Severity.ERROR,
    symptoms="Please input the training dataset.",
    cause="The host stops after it has resolved the model.",
)
def _no_dataset(run: Run) -> Iterator[Problem]:
    if not run.arguments.dataset:
        yield Problem("no training data", "--dataset", "--dataset train.jsonl")


@table.rule(
    "endless-wait",
    Severity.NOTE,
    symptoms="a hang lasts for days: ddp_timeout is 18,000,000 s",
    cause="When one rank fails in a reward the others wait in a gather until the timeout, 208 days.",
    reports=("A9", "B9"),
)
def _timeout(run: Run) -> Iterator[Problem]:
    if run.ranks > 1 and run.arguments.ddp_timeout >= 18_000_000:
        yield Problem("ranks wait 208 days for a rank that failed", "--ddp_timeout", "--ddp_timeout 3600")


def _path(name: str) -> str:
    return name.split("#")[0]


def _looks_local(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~")) or _path(name).endswith(
        (".jsonl", ".json", ".csv", ".parquet")
    )
