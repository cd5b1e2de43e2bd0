"""The example scripts, and what each one really starts: run by bash, with stand-ins for the commands."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from swift_grpo_ext.plugin_files import plugin_file

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.rglob("*.sh"))
RLHF_SCRIPTS = [path for path in SCRIPTS if path.name != "ray_megatron.sh"]
_HEAD = "# swift-grpo-ext check --gpu-memory 80:\n"
_STAND_IN = """#!/usr/bin/env bash
# A script that starts a server ends it when training has ended, so training waits for the server's record.
if [ "$1" = rlhf ] && [ -n "$WITH_SERVER" ]; then
    for _ in {1..200}; do [ -e "$RECORD/rollout.variables" ] && break; sleep 0.05; done
fi
printf '%s\\0' "${@:2}" > "$RECORD/$1.words"
env -0 > "$RECORD/$1.part"
mv "$RECORD/$1.part" "$RECORD/$1.variables"
"""
_SERVER = re.compile(r"^[^#\n]*\bswift rollout\b", re.MULTILINE)


@dataclass(frozen=True)
class Started:
    """One command as the shell started it."""

    words: list[str]
    variables: dict[str, str]

    def value(self, option: str) -> str:
        """The word after an option."""
        return self.words[self.words.index(option) + 1]

    def values(self, option: str) -> list[str]:
        """The words after an option, up to the next one."""
        rest = self.words[self.words.index(option) + 1 :]
        return rest[: next((place for place, word in enumerate(rest) if word.startswith("--")), len(rest))]


def name_of(path: Path) -> str:
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def findings_in_head(path: Path) -> set[tuple[str, str]]:
    """Level and id of each finding that the head of a script promises."""
    promised = path.read_text().partition(_HEAD)[2].partition("\nset ")[0].splitlines()
    assert promised, f"{path} does not say what check finds in it"
    return {
        (level, rule) for _, level, rule in (line.split()[:3] for line in promised if "nothing" not in line)
    }


def start(path: Path, folder: Path, **variables: str) -> dict[str, Started]:
    """Run a script with stand-ins that write down how they were called.

    Returns:
        Subcommand (``rlhf``, ``rollout``) to what was started.
    """
    for command, text in {
        "swift": _STAND_IN,
        "megatron": _STAND_IN,
        "swift-grpo-ext": '#!/usr/bin/env bash\n[ "$1" = path ] && echo "$PLUGIN"\n',
    }.items():
        (folder / command).write_text(text)
        (folder / command).chmod(0o755)
    mine = {"PATH": f"{folder}:{os.environ['PATH']}", "RECORD": str(folder), "PLUGIN": str(plugin_file())}
    mine["WITH_SERVER"] = "yes" if _SERVER.search(path.read_text()) else ""
    subprocess.run(["bash", path], env={**mine, **variables}, check=True, timeout=30, cwd="/")
    found = {}
    for words in folder.glob("*.words"):
        pairs = (pair.partition("=") for pair in _records(words.with_suffix(".variables")))
        found[words.stem] = Started(_records(words), {name: value for name, _, value in pairs})
    return found


def _records(path: Path) -> list[str]:
    return path.read_text().removesuffix("\0").split("\0")
