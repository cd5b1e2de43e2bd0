"""Each rule of the lint on a configuration that has its defect, and on one that has not."""

import pytest

from tests.deepspeed.runs import RULES, a_run, lint

ADAMW = {"type": "AdamW", "params": {"lr": "auto"}}
CPU = {"device": "cpu", "pin_memory": True}


def zero(stage, **keys):
    return {"zero_optimization": {"stage": stage, **keys}}


# rule -> (run that has it, run that has it not)
CASES = {
    "ds-optimizer-block": (a_run({"optimizer": ADAMW, **zero(2)}), a_run(zero(2))),
    "ds-overlap-comm": (a_run(zero(2, overlap_comm=True)), a_run(zero(3, overlap_comm=True))),
    "ds-hpz-offload": (
        a_run(zero(3, zero_hpz_partition_size=8, offload_param=CPU), nodes=2, ranks_per_node=8),
        a_run(zero(3, zero_hpz_partition_size=1, offload_param=CPU), nodes=2, ranks_per_node=8),
    ),
    "ds-zero2-offload-drops-gradients": (
        a_run(zero(2, offload_optimizer=CPU), "0.18.9", gradient_accumulation_steps=4),
        a_run(zero(2, offload_optimizer=CPU), "0.18.9", gradient_accumulation_steps=4, plugin=True),
    ),
}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_rule_sees_its_defect_and_only_that(rule):
    broken, good = CASES[rule]
    assert rule in {finding.rule for finding in lint(broken)}
    assert rule not in {finding.rule for finding in lint(good)}


@pytest.mark.parametrize("version", ["0.15.1", "0.19.0", "0.19.8"])
def test_zero2_offload_is_left_alone_outside_the_broken_releases(version):
    assert lint(a_run(zero(2, offload_optimizer=CPU), version, gradient_accumulation_steps=4)) == []


def test_every_finding_says_where_and_how_to_mend():
    for broken, _ in CASES.values():
        for finding in lint(broken):
            assert finding.what
            assert finding.where
            assert finding.fix


@pytest.mark.parametrize(
    "config", [{}, {"zero_optimization": None}, {"zero_optimization": {"stage": "two"}}, {"optimizer": None}]
)
def test_nonsense_does_not_raise(config):
    lint(a_run(config, "0.18.9", full=True))


def test_the_worst_comes_first():
    config = {"optimizer": ADAMW, **zero(2, offload_optimizer=CPU)}
    findings = lint(a_run(config, "0.18.9", gradient_accumulation_steps=4))
    assert [finding.severity.value for finding in findings] == ["error", "warning"]
