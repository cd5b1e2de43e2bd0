"""Which of our own figures a step logs."""

from swift_grpo_ext.watch.metrics import MOST, FewFigures
from swift_grpo_ext.watch.phases import PHASES

HOST = {"loss": [0.1], "reward": [0.5], "rewards/mine/mean": [0.5], "rewards/mine/std": [0.1], "kl": [0.0]}
WATCHED = "moved master_moved advantaged entropy engine_ratio engine_difference engine_largest"
HEALTHY = {
    **{f"watch/{name}": [1.0] for name in WATCHED.split()},
    **{f"watch/{name}": [0.0] for name in ("skipped", "empty", "identical_groups")},
    **{f"seconds/{phase}": [1.0, 3.0] for phase in PHASES},
    **{f"rewards/mine/{name}": [0.0] for name in ("timeouts", "failures")},
    "bad_rows": [0.0],
    "images/reused": [0.8],
    "completions/with_placeholder": [0.0],
    "reward_coverage": [1.0],
    "dropped_groups": [0.0],
    "unscored/mine": [0.0],
}


def test_a_healthy_step_logs_at_most_15_figures_of_our_own():
    kept = FewFigures().of({**HOST, **HEALTHY})
    own = set(kept) - set(HOST)
    assert len(own) <= MOST
    assert set(HOST) <= set(kept)
    assert {"watch/moved", "watch/advantaged", "seconds/rollout", "seconds/rest"} <= own


def test_the_seconds_are_still_those_of_the_step():
    kept = FewFigures().of(HEALTHY)
    mean = {name: sum(values) / len(values) for name, values in kept.items() if name.startswith("seconds/")}
    assert sum(mean.values()) == 2.0 * len(PHASES)
    assert mean["seconds/rollout"] == 6.0  # with encoding and weight sync


def test_a_phase_of_one_step_of_many_is_shared_out_over_them():
    kept = FewFigures().of({"seconds/forward": [1.0] * 10, "seconds/save": [20.0]})
    assert kept == {"seconds/forward": [1.0], "seconds/rest": [2.0]}


def test_a_fault_is_logged_from_its_first_step_on():
    few = FewFigures()
    assert "rewards/mine/failures" not in few.of(HEALTHY)
    assert few.of({**HEALTHY, "rewards/mine/failures": [0.0, 2.0]})["rewards/mine/failures"] == [0.0, 2.0]
    assert few.of(HEALTHY)["rewards/mine/failures"] == [0.0]
    assert "reward_coverage" in few.of({"reward_coverage": [0.75]})
