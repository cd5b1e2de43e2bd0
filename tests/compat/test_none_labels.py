"""A1 and A2 in real runs of the host, with a template whose merge is written as those of 2024 were."""

import pytest
import torch

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat import none_labels, registry
from swift_grpo_ext.errors import RefusedError
from tests.compat.reverting import revert

PATCH = "A1-none-labels"


def old_style_template(name, keep=None):
    """A template that zips over labels, and cuts at its max_length, as Ovis1.6's merge does."""
    from swift.template import register_template
    from swift.template.templates.qwen import QwenTemplateMeta

    from swift_grpo_ext.models.ovis2 import Ovis2Template

    class OldStyle(Ovis2Template):
        def _post_encode(self, model, inputs):
            made = super()._post_encode(model, inputs)
            if not self.is_training:
                return made
            merged, labels = [], []
            for row, row_labels in zip(made["inputs_embeds"], inputs.get("labels"), strict=True):
                merged.append(row[: keep or self.max_length])
                labels.append(row_labels[: keep or self.max_length])
            return {"inputs_embeds": torch.stack(merged), "labels": torch.stack(labels)}

    register_template(QwenTemplateMeta(name, template_cls=OldStyle), exist_ok=True)


@pytest.fixture
def run(tiny_ovis, digits, tmp_path):
    swift_grpo_ext.register()

    def start(**overrides):
        arguments = testing.grpo_arguments(
            tiny_ovis, digits.train, tmp_path / "out", reward_funcs="format", max_steps=1, **overrides
        )
        testing.run_in_process("rlhf", arguments)
        return testing.read_logging(tmp_path / "out")

    return start


@pytest.fixture
def stock():
    """The host without the patch."""
    swift_grpo_ext.register()
    registry.import_what_is_awaited()
    revert(PATCH)
    yield
    registry.settle(registry.patches()[PATCH])


def test_the_patch_is_applied():
    swift_grpo_ext.register()
    states = {outcome.patch.id: outcome.state for outcome in registry.outcomes()}
    assert states[PATCH] is registry.State.APPLIED


def test_before_grpo_of_an_old_style_merge_stops(run, stock):
    old_style_template("old_style")
    with pytest.raises(TypeError, match="'NoneType' object is not iterable"):
        run(template="old_style")


def test_after_it_trains(run):
    old_style_template("old_style")
    assert [record for record in run(template="old_style") if "reward" in record]


def test_before_a_cut_completion_passes_unnoticed(stock):
    kwargs = hooked(max_length=6, keep=None, labels=True)
    assert kwargs["inputs_embeds"].shape[1] == 6, "the host hands four positions less to the model"


def test_after_max_length_cuts_nothing():
    swift_grpo_ext.register()
    kwargs = hooked(max_length=6, keep=None, labels=False)
    assert kwargs["inputs_embeds"].shape[1] == 10
    assert "labels" not in kwargs


def test_a_cut_for_another_reason_is_refused():
    swift_grpo_ext.register()
    with pytest.raises(RefusedError) as caught:
        hooked(max_length=None, keep=6, labels=False)
    message = str(caught.value)
    assert "10 tokens became 6 embeddings" in message
    assert "so log-probs would be read from the wrong positions [--template merge]" in message
    assert (
        "-> a template that expands image tokens in _encode; Ovis2: swift-grpo-ext convert-ovis2" in message
    )
    assert "(https://github.com/modelscope/ms-swift/pull/3808)" in message


def test_labels_that_are_there_are_left_alone():
    swift_grpo_ext.register()
    kwargs = hooked(max_length=None, keep=None, labels=True)
    assert kwargs["labels"].tolist() == [[7] * 10] * 2


def hooked(*, max_length, keep, labels):
    """What the hook makes of 2 x 10 tokens, with a template that is no more than a merge."""
    from types import SimpleNamespace

    from swift.template import Template

    class Merge(Template):
        def __init__(self):
            self.max_length, self.mode = max_length, "train"
            self.template_meta = SimpleNamespace(template_type="merge")

        def _post_encode(self, model, inputs):
            cut = keep or self.max_length
            assert len(list(zip(inputs["input_ids"], inputs["labels"], strict=True))) == 2
            return {"inputs_embeds": torch.zeros(2, 10, 3)[:, :cut]}

    inputs = {"input_ids": torch.ones(2, 10, dtype=torch.long)}
    if labels:
        inputs["labels"] = torch.full((2, 10), 7)
    model = SimpleNamespace(device="cpu", forward=lambda inputs_embeds: None)
    return Merge().pre_forward_hook(model, (), inputs)[1]


@pytest.mark.parametrize(
    ("mask", "fits"),
    [([10, 10], True), ([10, 9], False), (None, False)],
    ids=["rows grow alike", "rows grow differently", "it does not show"],
)
def test_expanding_inside_the_forward(mask, fits):
    before = {"input_ids": torch.zeros(2, 6, dtype=torch.long)}
    after = {"inputs_embeds": torch.zeros(2, 10, 3)}
    if mask is not None:
        after["attention_mask"] = (torch.arange(10) < torch.tensor(mask).unsqueeze(1)).long()
    assert (none_labels.misalignment(before, after) == "") is fits
