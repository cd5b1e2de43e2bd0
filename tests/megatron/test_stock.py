"""The stock Megatron trainer against the stock transformers trainer, on the same made-up completions.

Layouts that need a fix of ours to be right have it; test_faults.py shows them without.
"""

import pytest

from tests.megatron.comparing import RECURRENT, assert_equal
from tests.megatron.table import BATCH_OF, CELLS, GATE, TEXT_ONLY


def cells(chosen=lambda wanted: True):
    """Rows of the table; those that are not in the gate are run by `make test-megatron`.

    The first test of a batch waits for all of its runs; the others are to follow on the same worker.
    """
    return [_cell(name, BATCH_OF[f"stock, {name}"]) for name, wanted in CELLS.items() if chosen(wanted)]


def _cell(name, batch):
    lane = () if name in GATE else (pytest.mark.lane,)
    return pytest.param(name, id=f"{batch}, {name}", marks=(pytest.mark.xdist_group(batch), *lane))


@pytest.mark.parametrize("name", cells(lambda wanted: not wanted.is_lora))
def test_cell(name, made, reference):
    run, wanted = made(f"stock, {name}"), CELLS[name]
    assert wanted.mode.items() <= run.mode.items()
    assert_equal(run, reference(**wanted.reference))
    counts, layers = run.counts[0], run.mode["layers"]
    assert (counts.get("patches", 0) > 0) == (wanted.family not in TEXT_ONLY)
    packed = run.mode["padding_free"]
    assert counts["packed_attention_calls"] == (counts["attention_calls"] if packed else 0)
    if run.mode["pp"] == 1 and wanted.family not in RECURRENT:
        again = run.mode["recompute"] != "none"
        assert (counts["attention_calls"] > layers * counts["decoder_calls"]) == again
