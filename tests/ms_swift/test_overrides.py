"""A method that ms-swift has lost would never be called: the run says so before it begins."""

import pytest

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift import hf
from swift_grpo_ext.ms_swift.overrides import require_overridden
from swift_grpo_ext.trainer import grpo
from tests.trainer.unstarted_trainer import unstarted_trainer


class Theirs:
    sample_cls = dict

    def kept(self):
        """Here."""


class Ours(Theirs):
    sample_cls = list

    def kept(self):
        """Overridden."""

    def renamed(self):
        """Overridden, if ms-swift had it."""

    @property
    def own(self):
        """Not an override."""


def test_what_is_gone_is_named():
    with pytest.raises(RefusedError, match=r"has no renamed, so .*Theirs\].*DISABLE=trainer") as refused:
        require_overridden(Ours, Theirs, part="trainer")
    assert "kept" not in str(refused.value)
    assert "own" not in str(refused.value).partition("[")[0]


def test_a_class_without_the_hook_for_samples_is_refused():
    with pytest.raises(RefusedError, match="has no sample_cls"):
        require_overridden(Ours, type("Older", (), {"kept": print, "renamed": print}), part="trainer")


def test_the_installed_release_has_everything():
    require_overridden(grpo.GRPOTrainer, hf.GRPOTrainer, part="trainer")


def test_a_trainer_is_not_built_over_a_method_that_is_gone(tiny_qwen, digits, tmp_path, monkeypatch):
    monkeypatch.delattr(hf.GRPOTrainer, "compute_std")
    with pytest.raises(RefusedError, match="has no compute_std"):
        unstarted_trainer(tiny_qwen, digits.train, tmp_path)
