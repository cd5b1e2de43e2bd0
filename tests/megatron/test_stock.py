"""The stock Megatron trainer against the stock transformers trainer, on the same made-up completions.

Layouts that need a fix of ours to be right have it; test_faults.py shows them without.
"""

import pytest

from tests.megatron.comparing import assert_equal, assert_equal_of_family
from tests.megatron.table import FAMILIES, GATE, LAYOUTS

pytestmark = pytest.mark.timeout(900)  # the first test of a batch waits for all of its runs


def params(table):
    """Rows of a table by name; those that are not in the gate are run by `make test-megatron`."""
    return [pytest.param(name, id=name, marks=() if name in GATE else pytest.mark.lane) for name in table]


@pytest.mark.parametrize("name", params(LAYOUTS))
def test_layout(name, made, reference):
    run = made(f"stock, {name}")
    assert LAYOUTS[name].mode.items() <= run.mode.items()
    assert_equal(run, reference())
    counts, layers = run.counts[0], run.mode["layers"]
    assert counts["patches"] > 0
    packed = run.mode["padding_free"]
    assert counts["packed_attention_calls"] == (counts["attention_calls"] if packed else 0)
    if run.mode["pp"] == 1:
        again = run.mode["recompute"] != "none"
        assert (counts["attention_calls"] > layers * counts["decoder_calls"]) == again


@pytest.mark.lane
@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, made, reference):
    run = made(f"stock, {name}")
    assert FAMILIES[name].mode.items() <= run.mode.items()
    family = FAMILIES[name].family
    assert_equal_of_family(run, reference(family), family)
