"""What happens where Megatron, or what is changed of ms-swift's trainer, is not there; needs neither."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from swift_grpo_ext import megatron, versions
from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift.overrides import require_overridden


class Stock:
    def forward_step(self):
        """A method that is changed."""


class Ours(Stock):
    def __init__(self):
        pass

    def forward_step(self):
        """The change."""


class Gone(Ours):
    def loss_func(self):
        """A change of what is not there."""


def test_every_method_that_is_changed_is_looked_up():
    require_overridden(Ours, Stock, "megatron")
    with pytest.raises(
        RefusedError, match=r"has no loss_func, so what replaces it would never run"
    ) as refused:
        require_overridden(Gone, Stock, "megatron")
    assert refused.value.where.endswith(".Stock")
    assert "SWIFT_GRPO_EXT_DISABLE=megatron" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture
def hooked(monkeypatch):
    """Modules that wait for others to be imported, by name."""
    found = {}
    hooks = SimpleNamespace(register_post_import_hook=lambda hook, name: found.update({name: hook}))
    monkeypatch.setitem(sys.modules, "wrapt", hooks)
    return found


@pytest.fixture
def installed(monkeypatch):
    """A function that sets the releases of megatron-core and mcore-bridge."""
    real = versions.installed_version

    def install(core, bridge):
        found = {"megatron-core": core, "mcore-bridge": bridge}
        monkeypatch.setattr(
            versions, "installed_version", lambda name: found[name] if name in found else real(name)
        )

    return install


@pytest.mark.parametrize(
    ("core", "bridge", "names", "line"),
    [
        ("0.16.1", "1.6.5", ["grpo"], ""),
        (None, None, [], ""),
        ("0.16.1", None, [], ""),
        ("0.18.0", "1.6.0", ["grpo"], ""),
        ("0.20.0", "1.6.5", [], "megatron-core 0.20.0 is outside >=0.16.1,<0.20"),
        ("0.16.1", "1.5.0", [], "mcore-bridge 1.5.0 is outside >=1.6,<1.7"),
    ],
)
def test_other_releases_leave_it_off_with_one_line(installed, capsys, hooked, core, bridge, names, line):
    installed(core, bridge)
    assert megatron.register() == names
    assert list(hooked) == ([megatron.HOST, megatron.RAY] if names else [])
    said = capsys.readouterr().err.strip()
    assert (line in said) if line else not said
    assert "\n" not in said


@pytest.fixture
def ours(monkeypatch):
    """The module with our trainer, which this process cannot import."""
    trainer = ModuleType("trainer")
    monkeypatch.setitem(sys.modules, "swift_grpo_ext.megatron.trainer", trainer)
    return trainer


def test_ours_joins_a_module_of_ms_swift_that_is_imported(installed, hooked, ours):
    installed("0.16.1", "1.6.5")
    joined = []
    ours.join = joined.append
    megatron.register()
    host = ModuleType(megatron.HOST)
    hooked[megatron.HOST](host)
    assert joined == [host]


@pytest.mark.parametrize(
    "gone",
    [
        ImportError("cannot import name 'prepare_batch'"),
        AttributeError("module 'swift.ray' has no attribute 'x'"),
        RefusedError("ms-swift 4.7 has no loss_func"),
    ],
)
def test_ms_swifts_trainer_stays_where_something_that_we_change_is_gone(
    gone, installed, hooked, ours, capsys
):
    def join(host):
        raise gone

    installed("0.16.1", "1.6.5")
    ours.join = join
    megatron.register()
    hooked[megatron.HOST](ModuleType(megatron.HOST))
    assert capsys.readouterr().err == f"swift-grpo-ext: the part megatron is off: {gone}\n"
