"""Writes ``docs/deepspeed-presets.md``: why each key of a preset has its value.

The values are in ``deepspeed/presets/*.json`` alone; ``presets_page.yaml`` says why, and a test holds that
each is explained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from swift_grpo_ext.deepspeed import presets

PAGE = Path(__file__).parents[1] / "docs" / "deepspeed-presets.md"
_TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
PURPOSE: dict[str, str] = _TEXTS["purpose"]
REASONS: dict[str, dict[str, Any]] = _TEXTS["reasons"]
LEFT_OUT: dict[str, dict[str, Any]] = _TEXTS["left_out"]


def flatten(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted keys and leaf values of a nested configuration, in order."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def values_of(key: str) -> dict[str, object]:
    """A key's value in each preset that has it."""
    return {
        name: dict(flatten(presets.load(name)))[key]
        for name in PURPOSE
        if key in dict(flatten(presets.load(name)))
    }


def as_markdown() -> str:
    """The page ``docs/deepspeed-presets.md``."""
    lines = [
        "# DeepSpeed presets",
        "",
        "Written by `python tools/presets_page.py`; edit `tools/presets_page.yaml`.",
        "",
        "`--deepspeed <name>` takes these beside ms-swift's own names, once the plugin is on the command "
        "line. Ids such as B1 are explained in [Findings](findings.md#the-defects-that-it-started-from).",
        "",
        "| name | for |",
        "|---|---|",
        *(f"| `{name}` | {purpose} |" for name, purpose in PURPOSE.items()),
        "",
        "## Every key, its value, and why",
        "",
        "| key | value | why | taught by |",
        "|---|---|---|---|",
        *(_row(key, _spell(values_of(key)), reason) for key, reason in REASONS.items()),
        "",
        "## Left out on purpose",
        "",
        "| key | | why | taught by |",
        "|---|---|---|---|",
        *(_row(key, "", reason) for key, reason in LEFT_OUT.items()),
        "",
    ]
    return "\n".join(lines)


def _row(key: str, value: str, reason: dict[str, Any]) -> str:
    links = ", ".join(f"[{_short(link)}]({link})" for link in reason.get("taught_by", ()))
    return f"| `{key}` | {value} | {reason['why']} | {links} |"


def _spell(values: dict[str, object]) -> str:
    """One value where all presets agree, else each preset's."""
    spelled = {name: json.dumps(value) for name, value in values.items()}
    if len(set(spelled.values())) == 1:
        return f"`{next(iter(spelled.values()))}`"
    return "; ".join(f"{name}: `{value}`" for name, value in spelled.items())


def _short(link: str) -> str:
    repository, _, number = link.removeprefix("https://github.com/").partition("/issues/")
    if not number:
        repository, _, number = repository.partition("/pull/")
    return f"{repository.split('/')[1]}#{number}"


if __name__ == "__main__":
    PAGE.write_text(as_markdown(), encoding="utf-8")
