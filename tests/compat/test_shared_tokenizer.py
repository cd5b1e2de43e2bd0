"""Threads that encode rows with one tokenizer, with and without padding."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from transformers import AutoTokenizer

from swift_grpo_ext.compat import registry, shared_tokenizer

DEFECT = registry.patches()["F50-shared-tokenizer"].defect
affected = pytest.mark.skipif(bool(DEFECT.absent_because()), reason=DEFECT.absent_because() or "has it")


def test_it_waits_for_the_other_thread_and_for_nothing_else():
    says = iter(["Already borrowed", "Already borrowed", "", "no such strategy"])

    def set_both(*args, **kwargs):
        if text := next(says):
            raise RuntimeError(text)

    fixed = shared_tokenizer.fix.fix(set_both)
    fixed("tokenizer", padding_strategy="longest")
    with pytest.raises(RuntimeError, match="no such strategy"):
        fixed("tokenizer", padding_strategy="longest")


def test_it_is_of_tokenizers_before_0_23():
    assert not DEFECT.absent_because({"ms-swift": "4.6.0", "tokenizers": "0.22.2"})
    assert DEFECT.absent_because({"ms-swift": "4.6.0", "tokenizers": "0.23.1"})


@affected
def test_threads_meet_without_the_patch_and_not_with_it(prove, tiny_qwen):
    proof = prove(shared_tokenizer.fix)
    proof.drift()
    tokenizer = AutoTokenizer.from_pretrained(tiny_qwen)

    def encode(padding):
        for _ in range(2000):
            tokenizer(["How many digits are there? " * 20, "four"], padding=padding)

    def meet():
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(encode, (True, False, True, False)))

    with pytest.raises(RuntimeError, match="Already borrowed"):
        meet()
    proof.on()
    meet()
