"""A checkpoint of a native class that brings code along: the code is not run."""

import json
import shutil
import sys

import pytest

import swift_grpo_ext
from swift_grpo_ext.compat import registry
from swift_grpo_ext.compat.native_config import is_native
from tests.compat.reverting import revert

CODE = """
import pathlib
from transformers import Ovis2Config
pathlib.Path(__file__).with_name("was_run").touch()
raise SystemExit("remote code was run")
"""


@pytest.fixture
def booby_trapped(tiny_ovis, tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_ovis, folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_trap.TrapConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_trap.py").write_text(CODE)
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return folder


def test_a_native_checkpoint_loads_without_its_code(booby_trapped):
    from swift.model import get_model_processor

    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    model, processor = get_model_processor(str(booby_trapped))
    assert type(model).__module__ == "transformers.models.ovis2.modeling_ovis2"
    assert type(processor).__module__ == "transformers.models.ovis2.processing_ovis2"
    assert not [name for name in sys.modules if "configuration_trap" in name]


def test_before_the_host_runs_it(booby_trapped):
    from swift.model.model_meta import get_model_info_meta

    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    revert("C1-native-config")
    try:
        with pytest.raises(SystemExit, match="remote code was run"):
            get_model_info_meta(str(booby_trapped))
    finally:
        registry.settle(registry.patches()["C1-native-config"])


def test_other_architectures_are_none_of_our_business(tmp_path):
    assert not is_native(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["Ovis"]}')
    assert not is_native(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert not is_native(tmp_path)
