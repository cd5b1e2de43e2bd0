"""Which mode the arguments of a run ask for. Every run on several ranks asserts that it is in it: `modes.py`."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

MODES = str(Path(__file__).with_name("modes.py"))


def mode_of(arguments: Sequence[str], ranks: int) -> str:
    """A name of `modes.MODES`."""
    given = dict(pairwise(arguments))
    if given.get("--sequence_parallel_size", "1") != "1":
        return "sequence parallel"
    if "--fsdp" in given:
        return given["--fsdp"]
    if stage := re.search(r"zero(\d)", given.get("--deepspeed", "")):
        return stage[0]
    return "ddp" if ranks > 1 else "alone"


def asserting_mode(arguments: Sequence[str], ranks: int) -> tuple[list[str], dict[str, str]]:
    """Arguments of ``swift rlhf`` and variables of a run whose ranks assert their mode at the first batch."""
    words = [str(word) for word in arguments]
    if "--external_plugins" not in words:
        words += ["--external_plugins"]
    start = words.index("--external_plugins") + 1
    # Behind the others: they may change what it imports.
    end = next((place for place in range(start, len(words)) if words[place].startswith("--")), len(words))
    return [*words[:end], MODES, *words[end:]], {"MODE": mode_of(words, ranks)}
