"""Holds the rules of CONTRIBUTING that no linter has: ``python tools/house.py``.

No file of the package over 250 lines, no function over 40, at most 29,000 lines in all, no ``self: Any``,
at most 20 ``type: ignore``, at most 273 functions with ``Any`` in their signature (half of commit
aa5e206's), and no attribute set on an object that is not ours, as far as the text shows it. All lines of a
function count, but for the docstring of a ``@reward``: that is its published spec card, and a shorter one
would be a worse page. What breaks a rule today is in ``tools/house_allowed.json`` with its size: it may
shrink, not grow, and nothing may join it. ``--update`` writes the smaller sizes down.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "swift_grpo_ext"
ALLOWED = Path(__file__).with_name("house_allowed.json")
MOST = {
    "lines": 250,
    "package": 29_000,
    "function": 40,
    "self: Any": 0,
    "foreign": 0,
    "type: ignore": 20,
    "Any": 273,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = dict[str, int]


def measured() -> Found:
    """Everything over its limit, as ``rule path[:function]`` with its size."""
    found: Found = {}
    ignores = loose = total = 0
    for path in sorted([*PACKAGE.rglob("*.py"), *ROOT.glob("tools/*.py")]):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        found[f"lines {name}"] = text.count("\n")
        total += text.count("\n") if PACKAGE in path.parents else 0
        ignores += text.count("# type: ignore")
        for qualified, function in _functions(ast.parse(text)):
            place = f"{name}:{qualified}"
            found[f"function {place}"] = _lines(function)
            loose += name.startswith("swift_grpo_ext/") and _names_any(function)
            found[f"self: Any {place}"] = int(_self_is_any(function))
            # A patch acts for a method of the object that it is given.
            found[f"foreign {place}"] = 0 if "/compat/" in name else sum(1 for _ in _foreign(function))
    found["package swift_grpo_ext"] = total
    found["type: ignore swift_grpo_ext"] = ignores
    found["Any swift_grpo_ext"] = loose
    return {key: size for key, size in found.items() if size > MOST[_rule(key)]}


def problems(found: Found, allowed: Found) -> list[str]:
    """What is new or has grown, one line each."""
    return [
        f"{key}: {size}, at most {max(MOST[_rule(key)], allowed.get(key, 0))}"
        for key, size in found.items()
        if size > allowed.get(key, 0)
    ]


def _rule(key: str) -> str:
    return next(rule for rule in MOST if key.startswith(f"{rule} "))


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        inner = f"{prefix}{node.name}." if isinstance(node, (Function, ast.ClassDef)) else prefix
        if isinstance(node, Function):
            yield inner[:-1], node
        yield from _functions(node, inner)


def _lines(function: Function) -> int:
    first = function.body[0]
    is_card = ast.get_docstring(function) and any(
        isinstance(each, ast.Call) and ast.unparse(each.func) == "reward" for each in function.decorator_list
    )
    card = (first.end_lineno or 0) - first.lineno + 1 if is_card else 0
    return (function.end_lineno or 0) - function.lineno + 1 - card


def _arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _names_any(function: Function) -> bool:
    starred = [each for each in (function.args.vararg, function.args.kwarg) if each]
    types = [*(each.annotation for each in (*_arguments(function), *starred)), function.returns]
    names = (node for each in types if each for node in ast.walk(each))
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in names)


def _self_is_any(function: Function) -> bool:
    first = next(iter(_arguments(function)), None)
    return first is not None and first.arg == "self" and _is_any(first)


def _is_any(argument: ast.arg) -> bool:
    return isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Any"


def _foreign(function: Function) -> Iterator[ast.Attribute]:
    """Attributes set on an argument that is typed ``Any``: what ms-swift, torch or DeepSpeed hand us."""
    names = {argument.arg for argument in _arguments(function) if _is_any(argument)}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            owner = target.value if isinstance(target, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in names:
                assert isinstance(target, ast.Attribute)
                yield target


def main() -> int:
    """Entry of the command line."""
    allowed: Found = json.loads(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.is_file() else {}
    found = measured()
    if "--update" in sys.argv[1:]:
        smaller = {key: size for key, size in found.items() if size <= allowed.get(key, 0)}
        ALLOWED.write_text(json.dumps(smaller, indent=1) + "\n", encoding="utf-8")
    wrong = problems(found, allowed)
    for line in wrong:
        print(f"house: {line}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
