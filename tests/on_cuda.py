"""Runs of the tests on a GPU in the place of the CPU: ``TEST_ON=cuda python -m pytest ...`` (`make test-gpu`)."""

from swift_grpo_ext import testing
from swift_grpo_ext.testing import arguments, run

HIDES_GPUS = ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR")
of_a_cpu = run.cpu_environment


def without_hiding_gpus() -> dict[str, str]:
    """What a run of the tests finds in its environment."""
    return {name: value for name, value in of_a_cpu().items() if name not in HIDES_GPUS}


run.cpu_environment = testing.cpu_environment = without_hiding_gpus
arguments.CPU_ARGUMENTS["use_cpu"] = False
