"""What the reader makes of plain scripts, against what bash really passes to the commands of ms-swift."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from swift_grpo_ext.doctor.check.script import read_script
from swift_grpo_ext.doctor.check.unknown import written

FOLDER = Path(__file__).parent
# What is no plain command: substitutions, branches, loops, functions, here-documents, other files and shells.
NOT_PLAIN = re.compile(
    r"\$\(|`|<<|<\(|\b(if|for|while|until|case|select|function|source|eval|exec|ssh|bash|docker|ray|xargs|cd)\b"
    r"|\w+\(\)|^\s*\. |[?*]|\$[@*1-9]|\$\{[^}]*[%#^,/]|&&|\|\||git|wget|curl|download|tail|sleep|trap|mapfile|declare"
    r"|(?<![-\w/])(torchrun|accelerate|deepspeed|mpirun|python3?|srun|uv|conda|numactl)\s",
    re.MULTILINE,
)
VARIABLES = ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES", "MAX_PIXELS", "MASTER_PORT")
STAND_IN = """#!/bin/bash
printf '%s\\0' "$(basename "$0")" "$@" > record.$$
for name in {names}; do printf '%s\\0' "${{!name-}}" >> variables.$$; done
"""


def scripts():
    held_out, launches, broken = (
        yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("held_out", "launches", "broken")
    )
    grpo = launches["grpo"]
    texts = [
        *held_out["runs"].values(),
        *launches["wrappers"].values(),
        *(text for _, text in broken["whole"].values()),
    ]
    texts += [text for _, text in held_out["fails"].values()]
    for text in texts:
        filled = text.replace("{GRPO}", grpo) if isinstance(text, str) else ""
        filled = filled.replace('"$(swift-grpo-ext path)"', "/our/all.py")
        if "rlhf" in filled and not NOT_PLAIN.search(filled):
            yield filled


def test_plain_scripts_are_read_as_bash_reads_them(tmp_path):
    stand_ins = tmp_path / "bin"
    stand_ins.mkdir()
    for name in ("swift", "megatron"):
        (stand_ins / name).write_text(STAND_IN.format(names=" ".join(VARIABLES)))
        (stand_ins / name).chmod(0o755)
    environ = {"PATH": f"{stand_ins}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(tmp_path)}
    agreed, others = 0, []
    for number, text in enumerate(scripts()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "train.sh").write_text(f"{text}\nwait\n", newline="")
        subprocess.run(
            ["bash", "train.sh"],
            cwd=folder,
            env=environ,
            capture_output=True,
            timeout=60,
            start_new_session=True,
        )
        started = []
        for record in folder.glob("record.*"):
            variables = record.with_name(record.name.replace("record", "variables"))
            values = variables.read_text().split("\0")[:-1]
            started.append((record.read_text().split("\0")[:-1], values))
        launch = read_script(text, environ)
        cut = launch.cuts or "\r" in text  # read as it was meant, and said so
        read = [
            (
                [command.program, command.subcommand, *map(written, command.words)],
                [written(command.environ.get(name, "")) for name in VARIABLES],
            )
            for command in launch.commands
        ]
        if cut or sorted(read) == sorted(started):
            agreed += 1
        else:
            others.append((text[:300], sorted(read), sorted(started)))
    count = agreed + len(others)
    print(f"{agreed} of {count} plain scripts are read as bash reads them")
    assert count >= 60
    assert agreed >= 0.93 * count, others
