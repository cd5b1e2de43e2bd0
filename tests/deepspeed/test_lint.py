"""Each rule of the lint on a configuration that has its defect, and on one that has not."""

import pytest

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.lint import Setup, lint, table

ADAMW = {"type": "AdamW", "params": {"lr": "auto"}}
CPU = {"device": "cpu", "pin_memory": True}


def zero(stage, **keys):
    return {"zero_optimization": {"stage": stage, **keys}}


# rule -> (setup that has it, setup that has it not)
CASES = {
    "ds-optimizer-loses-rates": (
        Setup({"optimizer": ADAMW, **zero(2)}, separate_rates=True),
        Setup({"optimizer": ADAMW, **zero(2)}),
    ),
    "ds-optimizer-block": (Setup({"optimizer": ADAMW, **zero(2)}), Setup(zero(2))),
    "ds-scheduler-block": (Setup({"scheduler": {"type": "WarmupLR"}, **zero(2)}), Setup(zero(2))),
    "ds-overlap-comm": (Setup(zero(2, overlap_comm=True)), Setup(zero(3, overlap_comm=True))),
    "ds-legacy-keys": (Setup(zero(2, cpu_offload=True)), Setup(zero(2, offload_optimizer=CPU))),
    "ds-hpz-ranks": (
        Setup(zero(3, zero_hpz_partition_size=8), ranks=12, ranks_per_node=6),
        Setup(zero(3, zero_hpz_partition_size=6), ranks=12, ranks_per_node=6),
    ),
    "ds-hpz-second-model": (
        Setup(zero(3, zero_hpz_partition_size=8), ranks=16, ranks_per_node=8, second_model=True),
        Setup(zero(3, zero_hpz_partition_size=8), ranks=16, ranks_per_node=8),
    ),
    "ds-hpz-offload": (
        Setup(zero(3, zero_hpz_partition_size=8, offload_param=CPU), ranks=16, ranks_per_node=8),
        Setup(zero(3, zero_hpz_partition_size=1, offload_param=CPU), ranks=16, ranks_per_node=8),
    ),
    "ds-hpz-one-node": (
        Setup(zero(3, zero_hpz_partition_size=8), ranks=8, ranks_per_node=8),
        Setup(zero(3, zero_hpz_partition_size=8), ranks=16, ranks_per_node=8),
    ),
    "ds-hpz-auto": (
        Setup(zero(3, zero_hpz_partition_size="auto"), ranks=16, ranks_per_node=8),
        Setup(zero(3, zero_hpz_partition_size="auto"), ranks=16, ranks_per_node=8, fills_hpz=True),
    ),
    "ds-offload-twice": (
        Setup(presets.load("ext_zero3_offload"), offload_optimizer=True),
        Setup(presets.load("ext_zero3"), offload_optimizer=True),
    ),
    "ds-offload-param-stage": (Setup(zero(2, offload_param=CPU)), Setup(zero(2, offload_optimizer=CPU))),
    "ds-offload-param-alone": (
        Setup(zero(3, offload_param=CPU), full_training=True),
        Setup(zero(3, offload_param=CPU), full_training=False),
    ),
    "ds-zero2-offload-drops-gradients": (
        Setup(zero(2, offload_optimizer=CPU), "0.18.9", accumulation=4),
        Setup(zero(2, offload_optimizer=CPU), "0.18.9", accumulation=4, healed=frozenset({"B1"})),
    ),
    "ds-zero0-bf16": (Setup(zero(0), "0.18.5"), Setup(zero(0), "0.18.9")),
    "ds-batch-mismatch": (
        Setup({"train_micro_batch_size_per_gpu": 2, **zero(2)}, micro_batch=1),
        Setup({"train_micro_batch_size_per_gpu": 2, **zero(2)}, micro_batch=2),
    ),
    "ds-saves-no-weights": (Setup(zero(3), full_training=True), Setup(zero(3), full_training=False)),
    "ds-mistyped-key": (Setup({"zero_optimisation": {"stage": 3}}), Setup(zero(3))),
    "ds-quantized": (
        Setup(zero(3, zero_quantized_weights=True)),
        Setup(zero(3, zero_quantized_weights=False)),
    ),
}


@pytest.mark.parametrize("rule", [rule.id for rule in table.rules])
def test_a_rule_sees_its_defect_and_only_that(rule):
    broken, good = CASES[rule]
    assert rule in {finding.rule for finding in lint(broken)}
    assert rule not in {finding.rule for finding in lint(good)}


@pytest.mark.parametrize("version", ["0.15.1", "0.19.0", "0.19.8"])
def test_zero2_offload_is_left_alone_outside_the_broken_releases(version):
    assert lint(Setup(zero(2, offload_optimizer=CPU), version, accumulation=4)) == []


@pytest.mark.parametrize(
    ("key", "block", "value"),
    [
        ("gradient_clipping", {"gradient_clipping": 0.5}, 1.0),
        ("optimizer.params.lr", {"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}}, 1e-5),
        ("bf16.enabled", {"bf16": {"enabled": False}}, True),
    ],
)
def test_values_that_contradict_the_command_line_are_told(key, block, value):
    def rules(config):
        return {finding.rule for finding in lint(Setup({**config, **zero(2)}, expected={key: value}))}

    assert "ds-batch-mismatch" in rules(block)
    assert "ds-batch-mismatch" not in rules({})
    assert "ds-batch-mismatch" not in rules({"gradient_clipping": "auto", "bf16": {"enabled": "auto"}})


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
    lint(Setup(config, "0.18.9", full_training=True))


def test_the_worst_comes_first():
    findings = lint(Setup({"scheduler": {}, **zero(0)}, "0.18.5"))
    assert [finding.severity.value for finding in findings] == ["error", "warning"]
