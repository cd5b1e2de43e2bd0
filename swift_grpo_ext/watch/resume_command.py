"""The command that resumes a run that was asked to end, ready to be pasted into a shell."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from swift_grpo_ext.settings import PREFIX

# Environment variables that decide the processes, the devices, and the processing of images and videos.
_VARIABLES = """
    NPROC_PER_NODE NNODES NODE_RANK CUDA_VISIBLE_DEVICES ASCEND_RT_VISIBLE_DEVICES PYTORCH_CUDA_ALLOC_CONF
    PYTORCH_ALLOC_CONF USE_HF ROOT_IMAGE_DIR QWENVL_BBOX_FORMAT MAX_PIXELS MIN_PIXELS IMAGE_FACTOR INPUT_SIZE
    IMAGE_MAX_TOKEN_NUM IMAGE_MIN_TOKEN_NUM SPATIAL_MERGE_SIZE MAX_NUM MAX_RATIO MAX_PARTITION MAX_SLICE_NUMS
    FPS FPS_MAX_FRAMES FPS_MIN_FRAMES NFRAMES VIDEO_MAX_PIXELS VIDEO_MIN_PIXELS VIDEO_TOTAL_PIXELS
    VIDEO_MAX_TOKEN_NUM VIDEO_MIN_TOKEN_NUM VIDEO_MAX_NUM VIDEO_SEGMENTS VIDEO_MAX_SLICE_NUMS
    USE_AUDIO_IN_VIDEO ENABLE_AUDIO_OUTPUT
    """
_RESUMES = ("--resume_from_checkpoint", "--resume_only_model")


def how_to_resume(
    checkpoint: Path,
    weights_only: bool,
    words: Sequence[str],
    variables: Mapping[str, str],
) -> str:
    """The command to paste to resume from a checkpoint.

    Args:
        checkpoint: Its folder.
        weights_only: It has no optimizer state (``--save_only_model true``): steps start at 0 again.
        words: The training process's script and arguments.
        variables: The training process's environment.

    Returns:
        The ``swift rlhf`` command, or only the arguments to add if another command started the process.

    >>> how_to_resume(Path("o/checkpoint-2"), False, ["swift/cli/rlhf.py", "--beta", "0"], {})
    'swift rlhf --beta 0 --resume_from_checkpoint o/checkpoint-2'
    """
    script, *arguments = words
    resume = ["--resume_from_checkpoint", str(checkpoint)]
    if weights_only:
        resume += ["--resume_only_model", "true"]
    if Path(script).parts[-3:] != ("swift", "cli", "rlhf.py"):
        return shlex.join(resume)
    chosen = [name for name in variables if name in _VARIABLES.split() or name.startswith(PREFIX)]
    settings = [f"{name}={shlex.quote(variables[name])}" for name in sorted(chosen)]
    return " ".join([*settings, shlex.join(["swift", "rlhf", *_without_resume(arguments), *resume])])


def _without_resume(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that name the checkpoint to resume from."""
    kept: list[str] = []
    dropped = False
    for word in arguments:
        if word.startswith("--"):
            dropped = word.partition("=")[0].replace("-", "_").replace("__", "--", 1) in _RESUMES
        if not dropped:
            kept.append(word)
    return kept
