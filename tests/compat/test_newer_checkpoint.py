"""A checkpoint of transformers 5 under transformers 4 is one clear line; older ones are nobody's business."""

import json
from importlib.metadata import version

import pytest
from packaging.version import Version

from swift_grpo_ext.compat import newer_checkpoint
from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.hugging_face.checkpoints import check_readable


def test_of_a_later_generation(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"transformers_version": "5.12.1"}))
    with pytest.raises(
        EnvironmentMismatchError, match=r"transformers 5\.12\.1 has saved the checkpoint"
    ) as raised:
        check_readable(tmp_path, Version("4.57.6"))
    assert raised.value.where == str(tmp_path / "config.json")
    assert raised.value.fix == 'pip install "transformers>=5"'
    check_readable(tmp_path, Version("5.1.0"))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"transformers_version": null}', '{"transformers_version": "new"}']
)
def test_what_nobody_knows_is_not_judged(tmp_path, text):
    check_readable(tmp_path)
    (tmp_path / "config.json").write_text(text)
    check_readable(tmp_path)


def test_checkpoints_of_this_release_and_older_ones_are_read(tiny_qwen):
    check_readable(tiny_qwen)
    assert json.loads((tiny_qwen / "config.json").read_text())["transformers_version"] == version(
        "transformers"
    )


def test_the_patch_is_of_transformers_4_and_goes_on_and_off(prove, tmp_path):
    assert DEFECTS["F45"].absent_because({"ms-swift": "4.6.0", "transformers": "5.12.1"})
    assert not DEFECTS["F45"].absent_because({"ms-swift": "4.6.0", "transformers": "4.57.6"})
    from swift.model.model_meta import get_model_info_meta

    (tmp_path / "config.json").write_text(
        json.dumps({"transformers_version": "99.0.0", "model_type": "qwen2"})
    )
    proof = prove(newer_checkpoint.fix)
    proof.drift()
    proof.on()
    with pytest.raises(EnvironmentMismatchError, match=r"99\.0\.0"):
        get_model_info_meta(str(tmp_path))
    proof.off()
