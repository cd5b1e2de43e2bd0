import pytest

from swift_grpo_ext import testing
from tests.asserted_modes import MODES, asserting_mode, mode_of


@pytest.mark.parametrize(
    ("options", "ranks", "mode"),
    [
        ({}, 1, "alone"),
        ({}, 2, "ddp"),
        ({"deepspeed": "zero3_offload"}, 2, "zero3"),
        ({"deepspeed": "ext_zero2"}, 2, "zero2"),
        ({"fsdp": "fsdp2"}, 2, "fsdp2"),
        ({"sequence_parallel_size": 2}, 2, "sequence parallel"),
        ({"sequence_parallel_size": 1}, 2, "ddp"),
    ],
)
def test_the_mode_that_arguments_ask_for(options, ranks, mode):
    from tests import modes

    words = testing.command_line(options)
    assert mode_of(words, ranks) == mode
    assert mode in modes.MODES


def test_the_assertion_is_the_last_of_the_plugin_files():
    words = ["--external_plugins", "one.py", "two.py", "--beta", "0"]
    expected = ["--external_plugins", "one.py", "two.py", MODES, "--beta", "0"]
    assert asserting_mode(words, ranks=2) == (expected, {"MODE": "ddp"})
    assert asserting_mode(["--beta", "0"], ranks=1)[0][2:] == ["--external_plugins", MODES]
