"""Checks the rules of CONTRIBUTING that no linter has: ``python tools/house.py``.

The size of the package is counted in nodes of the syntax tree, not in lines: annotations, docstrings,
imports, comments and blank lines are free, and a denser line has as many nodes as a plain one, so squeezing
gains nothing. ``python tools/house.py --rooms`` prints the nodes of each room.

The package is held to 105,000 nodes, and no feature raises that: a new capability names what it replaces.
Each room has a ceiling of its own: what it has. A ceiling rises only by what another falls.

Beside the size: files of at most 400 lines, no class name twice, no ``self: Any``, at most 20
``type: ignore``, and no attribute set on an object that is not ours, as far as the text shows it. Sizes of
functions are ruff's rules, see pyproject.toml.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "swift_grpo_ext"

PROMISE = 105_000  # nodes of the whole package
# Most nodes of each room; what stands at the top of the package is the ground.
CEILINGS = {
    "rewards": 20_200,
    "doctor": 14_827,
    "trainer": 20_041,
    "watch": 10_216,
    "group": 12_199,
    "models": 7_749,
    "megatron": 6_757,
    "testing": 3_170,
    "compat": 4_192,
    "ground": 5_493,
}
MOST_LINES = 400  # of a file
MOST_TYPE_IGNORES = 20
MOST_PLAIN_OBJECT = 36  # functions with a parameter that is plainly `object`

Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a reader does not take in by itself: marks of a load or a store, of `+`, of `and`.
MARKS = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.arguments)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def nodes(tree: ast.AST) -> int:
    """The nodes of a syntax tree without annotations, docstrings and imports."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        aside = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            aside.append(node)
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            aside.append(node.body[0])
        for subtree in aside:
            if subtree is not None:
                left_out.update(id(part) for part in ast.walk(subtree))
    return sum(id(node) not in left_out and not isinstance(node, MARKS) for node in ast.walk(tree))


def nodes_by_room() -> Counter[str]:
    """Nodes of each room; files at the top of the package, and rooms without a ceiling, are the ground."""
    rooms: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        room = room if room in CEILINGS else "ground"
        rooms[room] += nodes(ast.parse(path.read_text(encoding="utf-8")))
    return rooms


def too_large() -> Iterator[str]:
    """Rooms over their ceiling, and the package over the promise."""
    rooms = nodes_by_room()
    for room, most in CEILINGS.items():
        if rooms[room] > most:
            yield f"{room} has {rooms[room]} nodes, at most {most}: a new capability names what it replaces"
    if rooms.total() > PROMISE:
        yield f"the package has {rooms.total()} nodes, at most {PROMISE}; --rooms shows where"


def classes_twice() -> dict[str, int]:
    """Names that several classes of the package have: in a traceback none of them says which it is."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name: count for name, count in names.items() if count > 1}


def problems() -> Iterator[str]:
    """Everything that breaks a rule, one line each."""
    ignores = 0
    plain_objects = 0
    for path in sorted([*PACKAGE.rglob("*.py"), *ROOT.glob("tools/*.py")]):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        lines = text.count("\n")
        if lines > MOST_LINES:
            yield f"{name}: {lines} lines, at most {MOST_LINES}"
        ignores += text.count("# type: ignore")
        for qualified, function in functions(ast.parse(text)):
            place = f"{name}:{qualified}"
            plain_objects += PACKAGE in path.parents and has_plain_object(function)
            if self_is_any(function):
                yield f"{place}: self: Any"
            # A patch acts for a method of the object that it is given.
            if "/compat/" not in name:
                for target in foreign_attributes(function):
                    yield f"{place}: sets {ast.unparse(target)}, an attribute of an object that is not ours"
    if ignores > MOST_TYPE_IGNORES:
        yield f"{ignores} type: ignore, at most {MOST_TYPE_IGNORES}"
    if plain_objects > MOST_PLAIN_OBJECT:
        yield f"{plain_objects} functions take a plain object, at most {MOST_PLAIN_OBJECT}"
    if twice := classes_twice():
        yield f"class names twice: {', '.join(sorted(twice))}"
    yield from too_large()


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function of a tree, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        inner = f"{prefix}{node.name}." if isinstance(node, (Function, ast.ClassDef)) else prefix
        if isinstance(node, Function):
            yield inner[:-1], node
        yield from functions(node, inner)


def arguments(function: Function) -> list[ast.arg]:
    """The named arguments of a function."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def has_plain_object(function: Function) -> bool:
    """Whether a named parameter is plainly ``object``: such a signature tells a reader nothing."""
    annotations = [argument.annotation for argument in arguments(function)]
    return any(isinstance(each, ast.Name) and each.id == "object" for each in annotations)


def self_is_any(function: Function) -> bool:
    """Whether ``self`` is typed ``Any``, which turns the checker off."""
    first = next(iter(arguments(function)), None)
    return first is not None and first.arg == "self" and is_any(first)


def is_any(argument: ast.arg) -> bool:
    """Whether an argument is typed plainly ``Any``."""
    return isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Any"


def foreign_attributes(function: Function) -> Iterator[ast.Attribute]:
    """Attributes set on an argument that is typed ``Any``: what ms-swift, torch or DeepSpeed hand us."""
    names = {argument.arg for argument in arguments(function) if is_any(argument)}
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            if not isinstance(target, ast.Attribute):
                continue
            owner = target.value
            if isinstance(owner, ast.Name) and owner.id in names:
                yield target


def main() -> int:
    """Entry of the command line: exit status 1 if a rule is broken."""
    if "--rooms" in sys.argv[1:]:
        rooms = nodes_by_room()
        for room, size in rooms.most_common():
            print(f"{size:7} {room}, at most {CEILINGS[room]}")
        print(f"{rooms.total():7} in all, {PROMISE} promised")
        return 0
    wrong = list(problems())
    for line in wrong:
        print(f"house: {line}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
