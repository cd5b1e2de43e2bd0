"""Hooks of ``mkdocs build``: pages made of what stands elsewhere, so that they are never stale.

``settings.md`` is made from ``swift_grpo_ext/settings.py``, ``patches.md`` from the patches of the part
``compat``; the examples, ``upstream/``, CHANGELOG and CONTRIBUTING are published as they are. Links are
written as they are right in the repository, and moved. An entry of ``nav`` that ends in ``/`` stands for the
pages of that folder, and is left out if there are none.
"""

from __future__ import annotations

import posixpath
import re
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from swift_grpo_ext.compat.registry import patches
from swift_grpo_ext.settings import PREFIX, Settings

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

SETTINGS_HEAD = """\
# Settings

Every switch is an environment variable, because the host takes no new flags from a plugin. Set it before
`swift rlhf`. A misspelt name, or a value out of range, is an error that names the nearest.
"""
PATCHES_HEAD = """\
# Patches

Defects of ms-swift and of the packages under it that the part [compat](parts/compat.md) heals. A patch is put
on only where its probe finds the defect. A target that does not look like what the patch was written for is
left alone, with a warning.
`SWIFT_GRPO_EXT_DISABLE=compat.<id>` leaves one out.
"""
_RELATIVE = re.compile(r"\]\(((?:\.\./|docs/)[^)#\s]+)")
_BOUNDS = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
_KINDS = {int: "whole number", float: "number", str: "text"}


def settings_page() -> str:
    """Every variable with its values, default and meaning."""
    rows = (
        (f"`{PREFIX}{name.upper()}`", _values(field), _default(field), field.description or "")
        for name, field in Settings.model_fields.items()
    )
    return SETTINGS_HEAD + _table(("variable", "values", "default", "meaning"), rows)


def patches_page() -> str:
    """Every patch with what breaks without it, where it applies, and when it can go."""
    rows = (
        (
            f"`{patch.id}`",
            patch.defect.what,
            ", ".join(f"{name} {releases}" for name, releases in patch.defect.affected.items()),
            f"[report]({patch.defect.reports[0]})",
            patch.remove_when,
        )
        for patch in patches().values()
    )
    return PATCHES_HEAD + _table(("id", "without it", "releases", "report", "goes when"), rows)


PAGES = {"settings.md": settings_page, "patches.md": patches_page}
# What a page links to in the repository, and what the site has in its place.
MADE_FROM = {"swift_grpo_ext/settings.py": "settings.md", "swift_grpo_ext/compat/registry.py": "patches.md"}
PUBLISHED = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/**/*.*", "upstream/**/*.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the folders of the navigation."""
    config.nav = with_folders(config.nav or [], Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and the files published as they are."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    root = Path(config.docs_dir).parent
    for path in published(root):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that are right in the repository lead to where the site has the same."""
    root = Path(config.docs_dir).parent
    path = page.file.abs_src_path
    here = Path(path).relative_to(root).parent.as_posix() if path else Path(config.docs_dir).name
    place = posixpath.dirname(page.file.src_uri)
    known = {file.src_uri for file in files}

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[1]))
        target = MADE_FROM.get(target, target).removeprefix(f"{Path(config.docs_dir).name}/")
        return f"]({posixpath.relpath(target, place or '.')}" if target in known else match[0]

    return _RELATIVE.sub(moved, markdown)


def published(root: Path) -> Iterator[Path]:
    """Files outside docs/ that are part of the site; not what runs of the examples left."""
    for pattern in PUBLISHED:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and not {"output", "__pycache__"} & set(path.relative_to(root).parts):
                yield path


def with_folders(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation with the pages of a folder in the place of its name, ``index.md`` first."""
    filled: list[Any] = []
    for entry in nav:
        if not isinstance(entry, dict):
            filled.append(entry)
            continue
        ((title, value),) = entry.items()
        if isinstance(value, list):
            filled.append({title: with_folders(value, docs)})
        elif not value.endswith("/"):
            filled.append(entry)
        elif pages := sorted((docs / value).glob("*.md"), key=lambda path: (path.stem != "index", path.stem)):
            filled.append({title: [value + path.name for path in pages]})
    return filled


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ("| " + " | ".join(map(_cell, row)) + " |\n" for row in (head, ("---",) * len(head), *rows))
    return "\n" + "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _values(field: FieldInfo) -> str:
    kinds = _kinds(field.annotation)
    for kind in kinds:
        if get_origin(kind) is Literal:
            return ", ".join(f"`{value}`" for value in get_args(kind))
    if bool in kinds:
        return "`0`, `1`"
    return " ".join([_KINDS.get(kinds[0], "names, with commas"), *_bounds(field)])


def _kinds(annotation: Any) -> list[Any]:
    """The alternatives of a type, without None."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for kind in get_args(annotation) if kind is not types.NoneType]
    return [annotation]


def _bounds(field: FieldInfo) -> Iterator[str]:
    for bound in field.metadata:
        for name, wording in _BOUNDS.items():
            if (value := getattr(bound, name, None)) is not None:
                yield wording.format(value)


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value in ((), ""):
        return "unset"
    return f"`{int(value) if isinstance(value, bool) else value}`"
