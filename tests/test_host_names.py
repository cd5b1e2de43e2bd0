"""Drift: every name of the host that the package reaches for is there, and takes what we count on.

`make test-hosts` runs this on both ends of the host range.
"""

import ast
import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pytest

import swift_grpo_ext
from swift_grpo_ext.compat.patch import Target, signature_of
from swift_grpo_ext.compat.registry import patches

PACKAGE = Path(swift_grpo_ext.__file__).parent
LIST = Path(__file__).with_name("host_names.txt")
HOSTS = ("swift",)


def listed():
    """Accepted signatures by name."""
    names = {}
    for line in LIST.read_text().splitlines():
        if not line.startswith("#"):
            names.setdefault(line.partition("(")[0], []).append(line)
    return names


def as_found(path):
    """The name with its signature in the installed host, as a line of the list."""
    thing = thing_at(path)
    return f"{path}({signature_of(thing)})" if inspect.isroutine(thing) else path


def thing_at(path):
    try:
        return Target(path).get()
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        return header_in_source(path)  # a module of the host that cannot be imported without vLLM


def header_in_source(path):
    """A function with the parameters of the one that stands in the host's source, and no body."""
    module, _, qualified = path.partition(":")
    node = ast.parse(Path(find_spec(module).origin).read_text())
    for name in qualified.split("."):
        node = next(child for child in node.body if getattr(child, "name", "") == name)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [default and ast.Constant(None) for default in node.args.kw_defaults]
    header = ast.Expression(ast.Lambda(node.args, ast.Constant(None)))
    return eval(compile(ast.fix_missing_locations(header), module, "eval"))


def fits(found, line):
    head, dots, _ = line.partition("...")
    return found.startswith(head) if dots else found == line


@pytest.mark.parametrize("path", listed())
def test_the_host_has(path):
    found = as_found(path)
    assert any(fits(found, line) for line in listed()[path]), f"drift: the host has {found}"


@pytest.mark.parametrize("patch_id", patches())
def test_no_patch_has_drifted(patch_id):
    patch = patches()[patch_id]
    assert patch.defect.absent_because() or signature_of(thing_at(patch.target)) == patch.fingerprint


def modules():
    """Our modules with their syntax trees; Megatron's room where its packages are installed."""
    megatron = () if find_spec("mcore_bridge") else (PACKAGE / "megatron", PACKAGE / "ms_swift/megatron.py")
    for file in sorted(PACKAGE.rglob("*.py")):
        if any(place in (file, *file.parents) for place in megatron):
            continue
        dotted = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        yield dotted, ast.parse(file.read_text())


def imported_names(tree):
    """``from swift.x import y``, wherever in a module it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] in HOSTS:
            yield from (f"{node.module}:{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ["group", "models", "rewards", "watch"])
def test_what_serves_any_trainer_imports_none(room):
    """ms-swift 5 replaces its trainers, and Megatron has its own: only `ms_swift` and patches name them."""
    trainers = ("swift.trainers", "swift.rlhf_trainers", "swift.megatron")
    used = {
        name
        for dotted, tree in modules()
        if dotted.startswith(f"swift_grpo_ext.{room}.")
        for name in imported_names(tree)
    }
    assert not [name for name in used if name.startswith(trainers)]


def our_classes():
    """Every class of ours, with the attributes that its code takes from ``self``, ``cls`` and ``super()``."""
    for dotted, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                cls = getattr(import_module(dotted), node.name, None)
                if inspect.isclass(cls):
                    yield cls, {inner.attr for inner in ast.walk(node) if is_of_self(inner)}


def is_of_self(node):
    if not isinstance(node, ast.Attribute):
        return False
    if isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id == "super"
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def inherited_names(classes):
    """Methods of host classes that classes of ours, or their mixins, override or call on themselves."""
    for cls in classes:
        base = next((base for base in cls.__mro__[1:] if is_hosts(base)), None)
        parents = [parent for parent in cls.__mro__ if parent in classes] if base else []
        for name in {name for parent in parents for name in {*vars(parent), *classes[parent]}}:
            source = next((parent for parent in base.__mro__ if name in vars(parent)), None)
            if (
                source
                and is_hosts(source)
                and not name.startswith("__")
                and inspect.isroutine(getattr(base, name))
            ):
                yield f"{source.__module__}:{source.__qualname__}.{name}"


def members(protocol):
    """Attributes and methods that a Protocol of ours names."""
    ours = [cls for cls in protocol.__mro__ if cls.__module__.startswith("swift_grpo_ext.")]
    methods = {name for cls in ours for name, value in vars(cls).items() if inspect.isroutine(value)}
    attributes = {name for cls in ours for name in inspect.get_annotations(cls)}
    return attributes, {name for name in methods if name not in dir(Protocol)}


def test_the_trainer_has_what_our_protocol_names():
    """Methods by their definition; attributes by an assignment somewhere in the trainer's own classes."""
    from swift_grpo_ext.trainer.host import Host

    attributes, methods = members(Host)
    trainer = thing_at("swift.rlhf_trainers:GRPOTrainer")
    bases = [
        cls for cls in trainer.__mro__ if cls.__module__.split(".")[0] in (*HOSTS, "trl", "transformers")
    ]
    sources = "".join(Path(inspect.getsourcefile(cls)).read_text() for cls in bases)
    sources += Path(find_spec("swift.rlhf_trainers.utils").origin).read_text()
    assert not {name for name in methods if not hasattr(trainer, name)}
    known = {name for name in attributes if re.search(rf"(self|trainer)\.{name}\b[^=\n]*=", sources)}
    of_ours = {
        "guard",
        "held_out",
        "passes",
        "rollout",
        "scoring",
    }  # what our own trainer brings, on whatever host
    assert not {name for name in attributes - known - of_ours if not hasattr(trainer, name)}


def test_the_list_has_every_method_that_our_protocol_names():
    from swift_grpo_ext.trainer.host import Host

    _, methods = members(Host)
    trainer = thing_at("swift.rlhf_trainers:GRPOTrainer")
    found = {name: next(cls for cls in trainer.__mro__ if name in vars(cls)) for name in methods}
    paths = {f"{cls.__module__}:{cls.__qualname__}.{name}" for name, cls in found.items() if is_hosts(cls)}
    missing = sorted(as_found(path) for path in paths - set(listed()))
    assert not missing, "add to {}:\n{}".format(LIST, "\n".join(missing))


def is_hosts(cls):
    return cls.__module__.split(".")[0] in HOSTS


@pytest.mark.slow  # it imports every module; `make test-hosts` runs it
def test_the_list_has_every_name_that_we_import_override_or_call():
    used = {name for _, tree in modules() for name in imported_names(tree)}
    used |= set(inherited_names(dict(our_classes())))
    missing = sorted(as_found(path) for path in used - set(listed()))
    assert not missing, "add to {}:\n{}".format(LIST, "\n".join(missing))
