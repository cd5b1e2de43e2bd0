"""The command that goes on with a run that was asked to end."""

import shlex
from pathlib import Path

import pytest

from swift_grpo_ext.watch.resume_command import how_to_resume

SCRIPT = "/venv/lib/python3.11/site-packages/swift/cli/rlhf.py"
CHECKPOINT = Path("/data/my run/v0-1/checkpoint-20")


def words(*arguments, environment=None, weights_only=False):
    command = how_to_resume(CHECKPOINT, weights_only, [SCRIPT, *arguments], environment or {})
    return shlex.split(command)


def test_it_is_the_command_that_was_typed_with_the_checkpoint():
    typed = [
        "--model",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "--system",
        "Answer; it's a 'digit' $HOME",
        "--reward_funcs",
        "a",
        "b",
    ]
    assert words(*typed) == ["swift", "rlhf", *typed, "--resume_from_checkpoint", str(CHECKPOINT)]


@pytest.mark.parametrize(
    "earlier",
    [
        ["--resume_from_checkpoint", "/old/checkpoint-10"],
        ["--resume_from_checkpoint=/old/checkpoint-10"],
        ["--resume-from-checkpoint", "/old/checkpoint-10", "--resume_only_model", "true"],
    ],
)
def test_an_earlier_checkpoint_is_replaced(earlier):
    resume = ["--resume_from_checkpoint", str(CHECKPOINT)]
    assert words("--beta", "0", *earlier, "--seed", "1") == [
        "swift",
        "rlhf",
        "--beta",
        "0",
        "--seed",
        "1",
        *resume,
    ]


def test_variables_of_the_launch_and_our_settings_come_first():
    environment = {
        "NPROC_PER_NODE": "2",
        "SWIFT_GRPO_EXT_DISABLE": "a b",
        "HOME": "/root",
        "API_KEY": "secret",
    }
    assert words(environment=environment)[:4] == [
        "NPROC_PER_NODE=2",
        "SWIFT_GRPO_EXT_DISABLE=a b",
        "swift",
        "rlhf",
    ]
    assert "secret" not in how_to_resume(CHECKPOINT, False, [SCRIPT], environment)


@pytest.mark.parametrize(
    "name", ["MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "FPS_MAX_FRAMES", "NFRAMES", "MAX_NUM", "USE_HF"]
)
def test_what_shapes_images_and_videos_is_part_of_the_command(name):
    assert words(environment={name: "4"})[:3] == [f"{name}=4", "swift", "rlhf"]


def test_weights_alone_are_resumed_as_such():
    assert words(weights_only=True)[-2:] == ["--resume_only_model", "true"]


def test_a_process_of_another_script_gets_the_arguments_alone():
    text = how_to_resume(CHECKPOINT, False, ["train.py", "--beta", "0"], {})
    assert text == "--resume_from_checkpoint '/data/my run/v0-1/checkpoint-20'"
