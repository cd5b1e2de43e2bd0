"""Drift: what Megatron's room reaches for in ms-swift, Megatron and mcore-bridge is there, and takes what we count on.

As tests/test_host_names.py for the other rooms, in an environment that has them; Ray's part where Ray is installed.
"""

import ast
import re
import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import getsourcefile
from pathlib import Path

import pytest

from tests import test_host_names as drift

LIST = Path(__file__).with_name("names.txt")
HOSTS = ("swift", "megatron", "mcore_bridge")
REPLACED = "swift_grpo_ext.ms_swift.megatron"
OF_OURS = {"accelerator", "model", "output_layers"}  # what our own trainer brings


def of_ray(name):
    return name.startswith("swift.ray")


def listed():
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return lines if find_spec("ray") else [line for line in lines if not of_ray(line)]


@pytest.mark.parametrize("line", listed())
def test_the_host_has(line):
    found = drift.as_found(line.partition("(")[0])
    assert drift.fits(found, line), f"drift: there is {found}"


def tree_of(dotted):
    return ast.parse(Path(find_spec(dotted).origin).read_text(encoding="utf-8"))


def modules():
    """Modules of the room, and that of the names it replaces, with their syntax trees."""
    stems = {file.stem for file in (drift.PACKAGE / "megatron").glob("*.py")} - {"__init__"}
    room = [f"swift_grpo_ext.megatron.{stem}" for stem in stems if find_spec("ray") or stem[:4] != "ray_"]
    for dotted in (*room, REPLACED):
        yield dotted, tree_of(dotted)


def test_the_list_has_every_name_that_we_import_override_or_call(monkeypatch):
    monkeypatch.setattr(drift, "modules", modules)
    monkeypatch.setattr(drift, "HOSTS", HOSTS)
    used = {name for _, tree in modules() for name in drift.imported_names(tree)}
    used |= set(drift.inherited_names(dict(drift.our_classes())))
    known = {line.partition("(")[0] for line in listed()} | set(drift.listed())
    missing = sorted(drift.as_found(path) for path in used - known)
    assert not missing, "add to {}:\n{}".format(LIST, "\n".join(missing))


def test_the_trainer_has_what_our_protocol_names():
    from swift.megatron.trainers.grpo_trainer import MegatronGRPOTrainer

    from swift_grpo_ext.megatron.host import MegatronHost

    attributes, methods = drift.members(MegatronHost)
    assert not {name for name in methods if not hasattr(MegatronGRPOTrainer, name)}
    own = [cls for cls in MegatronGRPOTrainer.__mro__ if cls.__module__.startswith("swift.")]
    sources = "".join(Path(getsourcefile(cls)).read_text(encoding="utf-8") for cls in own)
    known = {name for name in attributes if re.search(rf"self\.{name}\b[^=\n]*=", sources)}
    assert not {name for name in attributes - known - OF_OURS if not hasattr(MegatronGRPOTrainer, name)}


@pytest.mark.parametrize("path", sorted(drift.imported_names(tree_of(REPLACED))))
def test_a_name_that_is_gone_ends_the_import(path, monkeypatch):
    """Which is said in a line, and ms-swift's trainer stays: test_hooks.py."""
    module, _, name = path.partition(":")
    monkeypatch.delattr(import_module(module), name)
    monkeypatch.delitem(sys.modules, REPLACED, raising=False)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'"):
        import_module(REPLACED)
