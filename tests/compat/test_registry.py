"""The registry, on a stand-in module: what each state means, drift, revert, and waiting for an import."""

import sys
from importlib.util import find_spec

import pytest
import wrapt.importer

from swift_grpo_ext.compat import registry
from swift_grpo_ext.compat.patch import Patch, State, Target, signature_of
from swift_grpo_ext.defects import Defect
from swift_grpo_ext.errors import UnknownPartError
from swift_grpo_ext.parts import check_disabled
from tests.compat.reverting import restore, revert

SOURCE = """
class Halver:
    def halve(self, number, exact=True):
        return number // 2

    @staticmethod
    def of(number):
        return number // 2

class Child(Halver):
    pass
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A package `stand_in` that is on the path and not imported; the registry starts and ends empty."""
    (tmp_path / "stand_in.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_outcomes", {})
    monkeypatch.setattr(wrapt.importer, "_post_import_hooks", {})
    yield "stand_in"
    sys.modules.pop("stand_in", None)


def make(**changes):
    affected = changes.pop("affected", {"ms-swift": ">=4"})
    reports = ("https://example.org/1",)
    defaults = {
        "defect": Defect("X1", "halves are rounded down", affected, reports=reports, patch="X1"),
        "target": "stand_in:Halver.halve",
        "fingerprint": "self, number, exact=",
        "probe": lambda: True,
        "fix": lambda original: lambda self, number, exact=True: number / 2,
        "remove_when": "never",
    }
    return Patch(**(defaults | changes))


def test_a_patch_is_applied_and_reverting_restores_identity(stand_in):
    import stand_in as module

    original = vars(module.Halver)["halve"]
    assert module.Halver().halve(3) == 1
    registry.settle(make())
    assert registry.outcomes()[0].state is State.APPLIED
    assert module.Halver().halve(3) == 1.5
    revert("X1")
    assert vars(module.Halver)["halve"] is original
    assert registry.outcomes() == []


def test_a_static_method_stays_one_and_an_inherited_one_is_uncovered(stand_in):
    import stand_in as module

    target = Target("stand_in:Child.of")
    target.replace(lambda number: number / 2)
    assert module.Child.of(3) == module.Child().of(3) == 1.5
    assert module.Halver.of(3) == 1
    restore(target)
    assert "of" not in vars(module.Child)


@pytest.mark.parametrize("asked_first", [False, True])
def test_an_unimported_target_is_waited_for_and_not_imported(stand_in, asked_first):
    registry.settle(make())
    if asked_first:  # as transformers and accelerate do to see whether a package is installed
        assert find_spec("stand_in")
    assert "stand_in" not in sys.modules
    assert registry.outcomes()[0].state is State.WAITING
    import stand_in as module

    assert registry.outcomes()[0].state is State.APPLIED
    assert module.Halver().halve(3) == 1.5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"affected": {"ms-swift": "<1"}}, "is outside <1"),
        ({"affected": {"no-such-distribution": ">=0"}}, "is not installed"),
        ({"probe": lambda: False}, "the probe finds no defect here"),
    ],
)
def test_not_needed(stand_in, changes, reason):
    import stand_in as module

    registry.settle(make(**changes))
    assert registry.outcomes()[0].state is State.NOT_NEEDED
    assert reason in registry.outcomes()[0].reason
    assert module.Halver().halve(3) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "self, number"},
        {"target": "stand_in:Halver.gone"},
        {"target": "stand_in.gone:Halver", "after": "stand_in"},
    ],
)
def test_a_changed_target_says_drift_and_names_the_consequence(stand_in, changes):
    import stand_in as module

    with pytest.warns(RuntimeWarning, match=r"X1 does not apply.*halves are rounded down.*DRIFT"):
        registry.settle(make(**changes))
    assert registry.outcomes()[0].state is State.REFUSED
    assert module.Halver().halve(3) == 1


def test_disabled(stand_in):
    registry.settle(make(), disabled=True)
    assert registry.outcomes()[0].state is State.DISABLED


def test_an_unknown_patch_cannot_be_disabled():
    with pytest.raises(UnknownPartError, match=r"unknown part 'compat.A33'.*A3-zero3-trace"):
        check_disabled(["compat.A33"])


def test_a_target_without_source_says_drift(stand_in):
    import inspect

    import stand_in  # noqa: F401

    with pytest.warns(RuntimeWarning, match="DRIFT: OSError"):
        registry.settle(make(probe=lambda: bool(inspect.getsource(eval("lambda: 0")))))


@pytest.mark.parametrize("patch_id", ["A1-none-labels", "C1-native-config"])
def test_of_those_tested_in_whole_runs_the_way_back_and_the_drift(prove, patch_id):
    proof = prove(registry.patches()[patch_id])
    proof.on()
    proof.off()
    proof.drift()


def test_every_patch_names_a_cure_a_link_and_a_removal_rule():
    for patch in registry.patches().values():
        assert patch.defect.what
        assert patch.remove_when
        assert patch.defect.reports[0].startswith("https://")


def test_signatures_tell_kinds_and_defaults_but_not_values():
    assert signature_of(lambda a, /, b, *c, d=1, **e: 0) == "a, /, b, *c, d=, **e"
    assert signature_of(lambda a, *, b: 0) == "a, *, b"
