"""Pairs of runs that must be equal: however a step is cut, on however many ranks, resumed or not."""

import pytest
from pairs.cases import FAMILIES, Case, cases, cut
from pairs.runs import Bench, bench_of, compare, too_far

CASES = list(cases())


@pytest.fixture(scope="module", params=FAMILIES)
def bench(request, tmp_path_factory):
    return bench_of(request.param, tmp_path_factory.mktemp(request.param))


def test_names_are_unique_and_every_family_of_losses_is_there():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    for loss in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "gspo"):
        assert any(name.startswith(f"{loss}: 1 x 8") for name in names)


def test_two_cuts_of_a_step_are_equal_and_another_beta_is_not(tiny_qwen, digits, tmp_path):
    bench = Bench(tiny_qwen, digits.train, tmp_path)
    assert not too_far(compare(Case("cut", cut(8), cut(4, 2)), bench))
    assert too_far(compare(Case("another beta", cut(8), {**cut(8), "beta": 0.5}), bench))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [case for case in CASES if not case.differs], ids=lambda case: case.name)
def test_runs_that_must_be_equal_are(bench, case):
    assert not too_far(compare(case, bench))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", [case for case in CASES if case.differs], ids=lambda case: case.name)
def test_runs_that_differ_by_definition_do(bench, case):
    assert too_far(compare(case, bench)), case.differs
