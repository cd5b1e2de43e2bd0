"""Options of ``megatron rlhf``, read from ms-swift's source: importing them needs megatron-core and a GPU."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Files and classes, each overriding the ones before it.
_CLASSES = (
    ("megatron_args.py", "RLHFMegatronArgumentsMixin"),
    ("megatron_args.py", "MegatronTunerMixin"),
    ("megatron_args.py", "MegatronArguments"),
    ("megatron_base_args.py", "MegatronBaseArguments"),
    ("sft_args.py", "MegatronSftArguments"),
    ("rlhf_args.py", "MegatronRLHFArguments"),
)


def add_to(base: list[list[Any]], swift: Path) -> list[list[object]]:
    """Rows of an option table: those of the base class, and those of megatron's own classes."""
    rows: dict[str, list[list[Any]]] = {}
    for row in base:  # transformers' parser gives a switch that is on by default a second option, --no_...
        field = row[0][0].replace("--no_", "--", 1) if row[1] == "store_false" else row[0][0]
        rows.setdefault(field, []).append(row)
    for file, owner in _CLASSES:
        tree = ast.parse((swift / "megatron" / "arguments" / file).read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
        for one in classes[0].body if classes else ():
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                rows[f"--{one.target.id}"] = list(_rows(one.target.id, one.annotation, one.value))
    return [row for many in rows.values() for row in many]


def _rows(name: str, annotation: ast.expr, value: ast.expr | None) -> Iterator[list[object]]:
    """An option as transformers' parser makes it of a field."""
    kind, several = annotation, None
    while isinstance(kind, ast.Subscript) and ast.unparse(kind.value) in ("Optional", "List"):
        several = "+" if ast.unparse(kind.value) == "List" else several
        kind = kind.slice
    default = _default(value)
    flags = [f"--{name}", *([f"--{name.replace('_', '-')}"] if "_" in name else [])]
    if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Literal":
        choices = [one for one in ast.literal_eval(kind.slice) if one is not None]
        yield [flags, "choice", several, choices, default, None]
    elif ast.unparse(kind) == "bool":
        yield [flags, "bool", "?", None, default, True]
        if default is True:
            yield [[f"--no_{name}"], "store_false", 0, None, default, False]
    else:
        named = ast.unparse(kind)
        yield [flags, named if named in ("int", "float") else "str", several, None, default, None]


def _default(value: ast.expr | None) -> object:
    """A field's default; None for one that is made when it is needed."""
    if isinstance(value, ast.Call):
        value = next((one.value for one in value.keywords if one.arg == "default"), None)
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None
