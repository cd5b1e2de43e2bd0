"""The command that goes on with a run that was asked to end, ready to be pasted into a shell."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from swift_grpo_ext.settings import PREFIX

# Of the environment what decides how many processes train, on which devices, on which images and videos.
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
    """The command to paste to go on from a checkpoint.

    Args:
        checkpoint: Its folder.
        weights_only: It has no optimizer state (``--save_only_model true``): steps are counted anew.
        words: The training process's script and arguments.
        variables: Its environment.

    Returns:
        The command ``swift rlhf``, or, in a process that it did not start, the arguments to add.

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
    """The arguments without those that say from which checkpoint the run went on."""
    kept: list[str] = []
    dropped = False
    for word in arguments:
        if word.startswith("--"):
            dropped = word.partition("=")[0].replace("-", "_").replace("__", "--", 1) in _RESUMES
        if not dropped:
            kept.append(word)
    return kept
