"""The first value that is not finite is said by the rank that has it."""

import logging
from types import SimpleNamespace

import pytest

from swift_grpo_ext.trainer.tracing import Tracer
from swift_grpo_ext.watch.guard import Guard
from swift_grpo_ext.watch.journal import Journal


@pytest.mark.parametrize(("rank", "level"), [(0, logging.WARNING), (1, logging.ERROR)])
def test_a_rank_above_the_first_says_it_as_an_error(tmp_path, rank, level):
    """Its logger lets nothing else through: the console had torch's words about a probability tensor alone."""
    args = SimpleNamespace(process_index=rank)
    host = SimpleNamespace(args=args, state=SimpleNamespace(global_step=4), guard=Guard(rank))
    tracer = Tracer(host)
    tracer.begin(Journal(tmp_path, rank))
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("swift").addHandler(handler)
    try:
        tracer._tell("log-probs", module="model.visual")
    finally:
        logging.getLogger("swift").removeHandler(handler)
    (record,) = records
    assert record.levelno == level
    assert f"log-probs not finite at step 5 on rank {rank}, first in model.visual" in record.getMessage()
