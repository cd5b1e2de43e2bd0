"""Rows that share more than a prompt, in Megatron's attention: turns of a trajectory, branches of a search."""

import pytest
import torch

from swift_grpo_ext.group.layout import CAUSAL, visible
from swift_grpo_ext.megatron.attention import BACKENDS, ONE_CALL
from tests.group import trees
from tests.group.test_tree import layout_of
from tests.megatron.inside.test_bad_input import attention  # noqa: F401  (a fixture)


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.parametrize("form", sorted(trees.FORMS))
def test_a_tree_is_attended_as_its_mask_says(backend, form, attention):  # noqa: F811
    model, _ = attention
    layout = layout_of(trees.FORMS[form], ONE_CALL)
    numbers = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(layout.length, 2, 8, generator=numbers, dtype=torch.float64) for _ in range(3)
    )
    heads = [tensor.transpose(0, 1)[None] for tensor in (query, key, value)]
    mask = visible(layout, CAUSAL)
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
    found = BACKENDS[backend](model[0], query, key, value, layout)
    torch.testing.assert_close(found, expected[0].transpose(0, 1).flatten(1), atol=1e-9, rtol=1e-9)
