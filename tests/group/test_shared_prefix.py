import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_grpo_ext.group.layout import PackForm, visible
from swift_grpo_ext.group.shared_prefix import CannotPackError, build_pack, read_rows
from swift_grpo_ext.group.tree import build_tree
from tests.group.batches import collate
from tests.group.stars import rows_in

TOKENS = st.integers(1, 5)
PROMPT = st.lists(TOKENS, min_size=1, max_size=6)
COMPLETION = st.lists(st.tuples(TOKENS, st.booleans()), min_size=1, max_size=6).map(
    lambda pairs: ([token for token, _ in pairs], [True] + [mask for _, mask in pairs[1:]])
)


@st.composite
def batches(draw):
    prompts = draw(st.lists(PROMPT, min_size=1, max_size=3))
    rows = [(prompt, draw(COMPLETION)) for prompt in prompts for _ in range(draw(st.integers(1, 4)))]
    return collate(draw(st.permutations(rows)), draw(st.sampled_from(["left", "right"])))


def pack_of(batch, backend="dense"):
    rows = read_rows(batch["input_ids"], batch["attention_mask"], batch["completion_mask"])
    return rows, build_pack(rows, batch["input_ids"], batch["completion_mask"], PackForm(backend))


@given(batches())
@settings(max_examples=80)
def test_every_loss_token_is_predicted_once_from_the_token_before_it(batch):
    _, pack = pack_of(batch)
    ids, mask = batch["input_ids"], batch["completion_mask"]
    keep = mask.shape[1]
    back = pack.scatter(pack.ids)
    assert torch.equal(back, torch.where(mask, ids[:, -keep:], 0))
    before = pack.gather(ids)[0, pack.predictor]
    previous = ids.roll(1, 1)[:, -keep:]
    assert torch.equal(pack.scatter(before), torch.where(mask, previous, 0))


@given(batches())
@settings(max_examples=80)
def test_a_group_holds_the_rows_with_equal_prompts_and_its_prompt_once(batch):
    rows, pack = pack_of(batch)
    ids = batch["input_ids"].flatten()
    prompts = {tuple(ids[row.start : row.start + row.prompt].tolist()) for row in rows}
    assert len(prompts) == len({row.group for row in rows})
    assert pack.layout.length == pack.source.numel()
    assert pack.layout.length == sum(len(prompt) for prompt in prompts) + sum(
        row.tokens - row.prompt for row in rows
    )


@given(batches())
@settings(max_examples=50)
def test_along_a_branch_the_tokens_are_those_of_the_row(batch):
    rows, pack = pack_of(batch)
    ids, packed = batch["input_ids"].flatten(), pack.gather(batch["input_ids"])[0]
    for row, places in zip(rows, build_tree(rows).places, strict=True):
        assert packed[places].tolist() == ids[row.start : row.start + row.tokens].tolist()
        assert torch.equal(pack.layout.positions()[places], torch.arange(row.tokens))
        seen = visible(pack.layout)[places[-1]]
        assert torch.equal(seen.nonzero()[:, 0], places), "a token sees its row and nothing else"


def test_equal_tokens_with_other_images_are_another_group():
    batch = collate([([1, 2], [3]), ([1, 2], [4]), ([1, 2], [5])])
    cat, dog = [1, 0, 0], [2, 0, 0]
    rows = read_rows(*batch.values(), images=torch.tensor([cat, dog, cat]))
    assert rows[0].group == rows[2].group != rows[1].group


def test_equal_tokens_at_other_positions_are_another_group():
    batch = collate([([1, 2], [3]), ([1, 2], [4]), ([1, 2], [5])])
    positions = torch.tensor([[0, 1, 2], [0, 2, 3], [0, 1, 2]]).expand(3, 3, 3)  # mRoPE: (axis, batch, seq)
    rows = read_rows(*batch.values(), position_ids=positions)
    assert rows[0].group == rows[2].group != rows[1].group


def test_rows_without_a_loss_are_left_out_and_get_zero():
    batch = collate([([1, 2], [3, 4]), ([1, 2], ([3, 4], [0, 0]))])
    _, pack = pack_of(batch)
    assert rows_in(pack) == 1
    assert pack.scatter(torch.ones(len(pack.target)))[1].abs().sum() == 0


def test_no_loss_at_all_cannot_be_packed():
    batch = collate([([1, 2], ([3, 4], [0, 0]))])
    batch["completion_mask"] = torch.zeros(1, 2, dtype=torch.bool)
    with pytest.raises(CannotPackError, match="no row has a completion token"):
        pack_of(batch)


def test_padding_inside_a_row_cannot_be_packed():
    batch = collate([([1, 2, 3], [3, 4])])
    batch["attention_mask"][0, 1] = 0
    with pytest.raises(CannotPackError, match="padding between"):
        pack_of(batch)


def test_a_completion_without_a_prompt_cannot_be_packed():
    batch = collate([([], [3, 4]), ([1], [2])])
    with pytest.raises(CannotPackError, match="no prompt before"):
        pack_of(batch)
