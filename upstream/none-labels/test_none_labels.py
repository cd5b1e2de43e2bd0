"""GRPO of a template whose merge of images and tokens goes over the labels as well."""

import pytest
import torch
from swift.template import Template, register_template
from swift.template.templates.qwen import Qwen2_5VLTemplate, QwenTemplateMeta


class MergesLabels(Qwen2_5VLTemplate):
    """As remote-code models merge: row by row, over ids and labels together."""

    def _post_encode(self, model, inputs):
        if self.is_training:
            rows = list(zip(inputs["input_ids"], inputs.get("labels"), strict=True))
            assert all(ids.shape == labels.shape for ids, labels in rows)
        return super()._post_encode(model, inputs)


def test_grpo_trains(grpo):
    register_template(QwenTemplateMeta("merges_labels", template_cls=MergesLabels), exist_ok=True)
    assert [step["reward"] for step in grpo(template="merges_labels")] == [0, 0]


class Recorder(Template):
    def __init__(self):
        self.mode = "train"

    def _post_encode(self, model, inputs):
        self.seen = inputs.get("labels")
        return inputs


class Model(torch.nn.Module):
    device = "cpu"

    def forward(self, input_ids, labels=None):
        return input_ids


@pytest.mark.parametrize("absent", [{}, {"labels": None}])
def test_the_model_gets_no_labels_that_the_caller_did_not_give(absent):
    template = Recorder()
    inputs = {"input_ids": torch.ones(2, 3, dtype=torch.long), **absent}
    kwargs = template.pre_forward_hook(Model(), (), inputs)[1]
    assert kwargs.get("labels") is None
    assert inputs.get("labels") is None


def test_labels_of_the_caller_reach_both():
    template = Recorder()
    labels = torch.full((2, 3), 7)
    kwargs = template.pre_forward_hook(Model(), (), {"input_ids": torch.ones(2, 3).long(), "labels": labels})[
        1
    ]
    assert kwargs["labels"] is labels is template.seen
