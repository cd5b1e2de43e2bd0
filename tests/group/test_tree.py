"""The tree of some rows: what is shared, what is not, and which tokens see each other."""

import random
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, takewhile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from swift_grpo_ext.group import attention_gpu
from swift_grpo_ext.group.layout import CAUSAL, PackForm, PackLayout, Visibility, visible
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from swift_grpo_ext.group.tree import WORTH, Row, build_tree, even_parts
from tests.group import trees
from tests.group.batches import collate
from tests.group.test_attention import VISIBILITIES, equal, reference_varlen, ways, with_blocks

IDS = st.lists(st.integers(0, 2), min_size=2, max_size=8)


@st.composite
def lines(draw):
    """Rows that begin with a part of another one, and rows that do not."""
    ids = []
    for _ in range(draw(st.integers(1, 8))):
        begin = draw(st.sampled_from(ids)) if ids and draw(st.booleans()) else []
        ids.append(begin[: draw(st.integers(0, len(begin)))] + draw(IDS))
    prompts = [draw(st.integers(1, len(row))) for row in ids]
    return [line(row, prompt) for row, prompt in zip(ids, prompts, strict=True)]


def line(ids, prompt):
    return Row(torch.tensor([ids]), prompt)


def layout_of(rows, backend="dense", worth=1):
    return PackLayout(build_tree(rows_of(collate(rows)), worth).nodes, PackForm(backend))


def rows_of(batch):
    return read_rows(batch["input_ids"], batch["attention_mask"], batch["completion_mask"])


@given(lines(), st.sampled_from([1, 3, WORTH]))
@settings(max_examples=150)
def test_a_token_stands_at_its_place_and_sees_its_row_alone(rows, worth):
    tree = build_tree(rows, worth)
    layout = PackLayout(tree.nodes, PackForm("dense"))
    packed = torch.full((layout.length,), -1)
    for row, places in zip(rows, tree.places, strict=True):
        packed[places] = row.keys[0]
    assert bool((packed >= 0).all()), "each token of the pack is that of a row"
    seen = visible(layout)
    for row, places in zip(rows, tree.places, strict=True):
        assert torch.equal(packed[places], row.keys[0])
        assert torch.equal(layout.positions()[places], torch.arange(len(places)))
        for at in range(len(places)):
            assert torch.equal(seen[places[at]].nonzero()[:, 0], places[: at + 1])


@given(lines())
@settings(max_examples=150)
def test_each_distinct_beginning_is_one_token_if_all_sharing_is_worth_it(rows):
    beginnings = {
        tuple(row.keys[0, :stop].tolist()) for row in rows for stop in range(1, row.keys.shape[1] + 1)
    }
    assert build_tree(rows, 1).length == len(beginnings)
    assert build_tree(rows, 1).length <= build_tree(rows, 3).length


@given(lines())
@settings(max_examples=150)
def test_whole_prompts_are_shared_however_short_and_nothing_else_that_is(rows):
    """Of these rows, none of which has 64 tokens."""
    prompts = {tuple(row.keys[0, : row.prompt].tolist()) for row in rows}
    own = sum(row.keys.shape[1] - row.prompt for row in rows)
    assert build_tree(rows).length == sum(map(len, prompts)) + own


def test_an_opening_is_shared_from_64_spared_tokens_on():
    for opening, shared in ((63, False), (64, True)):
        rows = [line([5, *range(100, 100 + opening), last], 1) for last in (1, 2)]
        tree = build_tree(rows)
        assert tree.length == (2 + opening + 1 if shared else 1 + 2 * (opening + 1))


def test_a_system_prompt_is_shared_by_tasks_and_each_prompt_by_its_group():
    system = list(range(100, 170))
    rows = [line([*system, task, 7, done], 72) for task in (1, 2) for done in (3, 4)]
    tree = build_tree(rows)
    assert [(node.length, node.parent, node.level) for node in tree.nodes] == [
        (70, -1, 0), (2, 0, 1), (1, 1, 2), (1, 1, 2), (2, 0, 1), (1, 4, 2), (1, 4, 2),
    ]  # fmt: skip


def test_turns_that_continue_each_other_are_one_node():
    """A row that ends where others go on parts nothing: a caterpillar has no more levels than a star."""
    tokens = list(range(300))
    rows = [line(tokens[:stop], 70) for stop in (150, 220, 300)]
    (node,) = build_tree(rows).nodes
    assert node.length == 300


def test_rows_of_one_task_stay_together_where_their_openings_are_those_of_others():
    """Too short to be shared, and rows of a group on both sides of the fork: the prompts decide."""
    rows = [line([1, 2, 3], 1), line([1, 4, 5], 1), line([1, 2, 6, 7], 3), line([1, 2, 6, 8], 3)]
    assert build_tree(rows).length == (1 + 2 + 2) + (3 + 1 + 1)


@pytest.mark.slow
def test_two_hundred_turns_are_no_deeper_than_python_can_call():
    rng = random.Random(0)
    rows, history = [], trees.tokens(rng, 5)
    for _ in range(1200):
        rows.append(line([*history, 1, 2], 5))
        history.append(rng.randrange(3, 9))
    tree = build_tree(rows, 1)
    assert max(node.level for node in tree.nodes) > 1000
    assert tree.length == len(history) - 1 + 2 * len(rows)


def largest_pack(rows, cuts):
    bounds = [0, *cuts, len(rows)]
    return max(build_tree(rows[a:b], 1).length for a, b in pairwise(bounds) if b > a)


@given(lines(), st.integers(1, 4))
@settings(max_examples=60)
def test_no_other_cut_of_sorted_rows_has_a_smaller_largest_pack(rows, parts):
    """Depth first, as a rollout returns them: then a row shares with those before it what it does with the last."""
    rows = sorted(rows, key=lambda row: row.keys[0].tolist())
    found = even_parts(rows, parts)
    assert [at for part in found for at in part] == list(range(len(rows)))
    assert len(found) == parts
    every = combinations_with_replacement(range(len(rows) + 1), parts - 1)
    assert largest_pack(rows, [part.stop for part in found[:-1]]) == min(
        largest_pack(rows, cut) for cut in every
    )


@given(lines(), st.integers(1, 9))
@settings(max_examples=60)
def test_no_other_cut_of_rows_in_any_order_is_better_by_what_neighbours_share(rows, parts):
    """Also with more parts than rows; a row shares with the one before it what both begin with."""
    ids = [row.keys[0].tolist() for row in rows]
    common = [
        len([*takewhile(lambda at: at[0] == at[1], zip(*pair, strict=False))]) for pair in pairwise(ids)
    ]

    def tokens(first, stop):
        return sum(map(len, ids[first:stop])) - sum(common[first : stop - 1])

    best = [0, *[float("inf")] * len(rows)]  # of the rows up to each, in the parts so far
    for _ in range(parts):
        stops = range(len(best))
        best = [min(max(best[cut], tokens(cut, stop)) for cut in range(stop + 1)) for stop in stops]
    assert max(tokens(part.start, part.stop) for part in even_parts(rows, parts)) == best[-1]


def test_trajectories_stay_together_where_memory_runs_out():
    tokens = {name: list(range(at, at + 50)) for at, name in ((100, "a"), (200, "b"), (300, "c"))}
    rows = [line([5, *tokens[name][: 10 * turn]], 1) for name in "ab" for turn in (1, 3, 5)]
    assert even_parts(rows, 2) == [range(3), range(3, 6)]
    assert even_parts(rows[:1], 3).count(range(0, 1)) == 1


def test_the_forms_of_trees_are_what_their_names_say():
    depth = {form: max(node.level for node in layout_of(rows).nodes) for form, rows in trees.FORMS.items()}
    assert depth["caterpillar"] == 1
    assert depth["branches"] == 3
    assert min(depth.values()) == 1
    assert min(node.length for node in layout_of(trees.FORMS["nodes of one token"]).nodes) == 1


@pytest.fixture(autouse=True)
def _varlen_on_cpu(monkeypatch):
    monkeypatch.setattr(attention_gpu, "varlen_kernel", lambda: reference_varlen)


def by_the_mask(query, key, value, layout, visibility):
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    return scaled_dot_product_attention(query, key, value, attn_mask=visible(layout, visibility))


@pytest.mark.parametrize("form", sorted(trees.FORMS))
@pytest.mark.parametrize(
    ("backend", "visibility"), ways([CAUSAL, *VISIBILITIES, Visibility(window=12)]), ids=str
)
def test_every_way_of_attention_computes_what_the_mask_says(backend, visibility, form):
    layout = layout_of(trees.FORMS[form], backend)
    equal(backend, with_blocks(layout) if visibility.blocks else layout, visibility, by_the_mask)


def test_a_token_that_rows_share_is_scored_once_and_weighs_in_each():
    batch = collate([([1, 2], [3, 4, 5]), ([1, 2], [3, 4, 6]), ([1, 2], [3, 4])])
    rows = rows_of(batch)
    pack = build_pack(rows, batch["input_ids"], batch["completion_mask"], PackForm("dense"), worth=1)
    assert pack.layout.length == 4
    assert sorted(pack.ids.tolist()) == [3, 4, 5, 6]
    values = torch.arange(1.0, 5.0, requires_grad=True)
    pack.scatter(values).sum().backward()
    weights = dict(zip(pack.ids.tolist(), values.grad.tolist(), strict=True))
    assert weights == {3: 3.0, 4: 3.0, 5: 1.0, 6: 1.0}


def test_a_window_reaches_over_several_nodes():
    layout = layout_of(trees.FORMS["nodes of one token"])
    seen = visible(layout, Visibility(window=4))
    assert seen.sum(1).max() == 4
    assert torch.equal(seen, visible(layout) & seen)
    assert replace(layout, cache={}).visibility(1000) == CAUSAL
