"""A micro-batch of many rows as packs of a limited size: they have the scores of all rows between them."""

import pytest

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import analyse
from swift_grpo_ext.trainer.passes import parts_within
from tests.group import trees
from tests.group.batches import collate
from tests.group.models import VOCAB
from tests.group.test_decoders import build
from tests.group.test_forward import stock_logps
from tests.group.test_images_in_completions import Described
from tests.group.test_trees_of_rows import LONG, equal
from tests.precision import in_float64


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


@pytest.mark.parametrize(("most", "side"), [(40, "left"), (90, "right"), (150, "left"), (10_000, "right")])
@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_packs_under_a_budget_of_tokens_have_the_scores_of_all_rows_between_them(name, most, side):
    model = build(name, LONG).double()
    inputs = collate(trees.FORMS["all at once"], side)
    mask = inputs.pop("completion_mask")
    whole = analyse(inputs, mask, None, interface.pack_form(model.config, "sdpa"))
    parts = parts_within(whole, most)
    longest = int(inputs["attention_mask"].sum(1).max())
    for part in parts:
        assert part.pack.layout.length <= max(most, longest)
        assert part.pack.layout.length <= most or part.completion_mask.bool().any(1).sum() == 1
    assert (len(parts) == 1) == (most >= whole.pack.layout.length)
    scores = [
        packed_scores(model, model.lm_head, part.forward_inputs(False), part.pack, vocab_size=VOCAB)
        for part in parts
    ]
    equal(model, sum(scores)[..., 0], stock_logps(model, inputs, mask))


def test_rows_without_a_loss_are_one_pack_and_rows_that_cannot_be_packed_are_none():
    inputs = collate(trees.FORMS["branches"])
    mask = inputs.pop("completion_mask")
    silent = analyse(inputs, mask & False, None, PackForm("sdpa"))
    assert [part.pack.layout.length for part in parts_within(silent, 40)] == [1]
    unknown = analyse({**inputs, "token_weights": mask}, mask, Described(), PackForm("sdpa"))
    assert unknown.reason
    assert parts_within(unknown, 40) == []
    assert parts_within(analyse(inputs, mask, None, None), 40) == []
