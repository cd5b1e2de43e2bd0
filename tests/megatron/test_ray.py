"""ms-swift's Ray trainer on Megatron: its driver and workers, and ours in their place, train as the transformers trainer does."""

import json
import os
import subprocess
from functools import partial

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from tests.conftest import built_once
from tests.megatron.comparing import assert_equal
from tests.megatron.conftest import write_tiny
from tests.megatron.runs import FIXES, HERE, LIMIT, PATH, RunError, train_megatron, train_with_ray
from tests.megatron.table import FROZEN, OURS, PIPELINE, SEQUENCE, TENSOR
from tests.megatron.test_trainer import PASSES, PATCHES, PROMPT, completion_tokens, gains, shares

pytestmark = [pytest.mark.lane, pytest.mark.timeout(600)]
LAYOUTS = {
    "one worker": (1, {}, {"tp": 1}),
    "tensor parallel": (2, {**TENSOR, "perform_initialization": True}, {"tp": 2}),
    # Without fixes of M1 and M2 this layout is wrong, see test_faults.py: they are at work in Ray's workers, too.
    "sequence parallel, with fixes": (2, {**SEQUENCE, **FIXES}, {"tp": 2, "sequence_parallel": True}),
    "pipeline": (2, PIPELINE, {"pp": 2}),
    "data parallel": (2, {"micro_batch_size": 2}, {"dp": 2}),
}
OURS_TOO = {"external_plugins": [FIXES["external_plugins"], OURS]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_workers_train_as_transformers_does(layout, python_with_ray, tiny, four_rows, reference, tmp_path):
    workers, arguments, mode = LAYOUTS[layout]
    run = train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path, workers, **arguments)
    assert len(run.ranks) == workers
    assert mode.items() <= run.mode.items()
    assert_equal(run, reference())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_our_workers_share_prompts(layout, python_with_ray, tiny, four_rows, reference, tmp_path):
    workers, arguments, mode = LAYOUTS[layout]
    run = train_with_ray(
        python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path, workers, **{**arguments, **OURS_TOO}
    )
    assert len(run.ranks) == workers
    assert {"trainer": "WorkerTrainer", **mode}.items() <= run.mode.items()
    assert_equal(run, reference())
    on = {name for name, gain in gains(run).items() if gain["state"] == "on"}
    assert on == {"shared_prefix", "completion_logits", "skip_old_logps"}
    assert shares(run)  # each group once through the models in a pass, and no old pass
    # Each rank of a tensor has all rows of its output layer, and the last stage of a pipeline alone has any.
    assert run.counts[1]["head_rows"] == 2 * completion_tokens(run, 1) * run.mode["tp"]


def test_a_worker_is_watched_and_encodes_an_image_once(
    python_with_ray, tiny, four_rows, reference, tmp_path, monkeypatch
):
    """With all parts; the user's micro-batches of one completion are groups."""
    monkeypatch.setenv("SWIFT_GRPO_EXT_STALL_SECONDS", "1")  # a sign of life four times a second
    arguments = {**FROZEN, "micro_batch_size": 1, "external_plugins": plugin_file()}
    run = train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path, **arguments)
    assert_equal(run, reference(**FROZEN))
    facts = json.loads((tmp_path / "gains.json").read_text())
    assert "4 x 4 completions instead of 1 x 16" in facts["cut"]
    assert {gain["state"] for name, gain in facts["gains"].items() if name != "reference_copy"} == {"on"}
    assert facts["watching"]["held_out"]["why"] == "ms-swift evaluates nothing with Ray"
    counts, completions = run.counts[1], completion_tokens(run, 1)
    assert counts["decoder_calls"] == PASSES
    assert counts["tokens"] == 2 * (4 * PROMPT + completions - 16)  # of a completion not the last token
    assert counts["head_rows"] == 2 * completions
    assert counts["patches"] == 4 * PATCHES
    assert {"seconds/forward", "seconds/backward", "seconds/optimizer", "seconds/reference"} <= set(
        run.logs[1]
    )
    assert run.logs[-1]["watch/moved"] > 0
    # Of the driver: its rewards are guarded, and an image is prepared once for a group.
    assert run.logs[-1]["completions/with_placeholder"] == 0
    assert run.logs[-1]["images/reused"] > 0.5
    assert (tmp_path / "watch/rank_0.json").exists()
    failed = [line for line in run.output.splitlines() if "turned off" in line and "it took" not in line]
    assert failed == []


def test_later_updates_of_a_generation_batch_have_old_log_probs(python_with_ray, tiny, four_rows, tmp_path):
    """Two updates of each; ms-swift computes old log-probs for both, we for the second."""
    twice = {"global_batch_size": 8, "steps_per_generation": 2, "train_iters": 4, "beta": 0}
    stock, ours = (
        train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path / name, **twice, **plugins)
        for name, plugins in (("stock", {}), ("ours", OURS_TOO))
    )
    assert_equal(ours, stock, steps=4)
    assert [stock.counts[step]["decoder_calls"] for step in (2, 3)] == [6, 2]
    assert [ours.counts[step]["decoder_calls"] for step in (2, 3)] == [4, 2]


def test_a_teacher_is_compared_with_old_log_probs(python_with_ray, tiny, four_rows, shared_folder, tmp_path):
    """It is in the workers, another model than the policy; its passes go ms-swift's way."""
    teacher = built_once(shared_folder / "teacher", partial(write_tiny, "qwen2_5_vl", seed=7))
    arguments = {"teacher_model": teacher, "teacher_model_type": testing.host_types(teacher)["model_type"]}
    stock, ours = (
        train_with_ray(
            python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path / name, **arguments, **plugins
        )
        for name, plugins in (("stock", {}), ("ours", OURS_TOO))
    )
    assert stock.logs[0]["teacher_kl"] > 0.01
    assert ours.logs[0]["teacher_kl"] == pytest.approx(stock.logs[0]["teacher_kl"], rel=1e-5)
    assert_equal(ours, stock)
    assert gains(ours)["skip_old_logps"]["why"].startswith("a teacher is compared with it")
    assert gains(ours)["shared_prefix"]["state"] == "on"


@pytest.mark.parametrize("loss", ["dapo", "real"])
def test_a_completion_that_is_not_scored_is_not_in_the_loss(
    loss, python, python_with_ray, tiny, four_rows, tmp_path
):
    """As without Ray; of the losses one divides by the tokens that are left, one compares completions of a group."""
    arguments = {"reward_funcs": "made_up_or_none", "loss_type": loss, **OURS_TOO}
    model = tiny("qwen2_5_vl")
    by_ray = train_with_ray(python_with_ray, model, four_rows, tmp_path / "ray", **arguments)
    without = train_megatron(python, model, four_rows, tmp_path / "without", **arguments)
    assert_equal(by_ray, without)
    assert [4 < len(step) < 16 for step in by_ray.samples] == [True] * 3
    for name in ("reward", "reward_std", "reward_coverage", "rewards/made_up_or_none/mean"):
        assert by_ray.logs[0][name] == pytest.approx(without.logs[0][name], abs=1e-6)


def test_f43_a_loss_over_tokens(python_with_ray, tiny, four_rows, reference, tmp_path):
    """ms-swift's driver counts them in a number where its loss takes a tensor."""
    with pytest.raises(RunError, match="'float' object has no attribute 'clamp'"):
        train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path / "stock", loss_type="dapo")
    arguments = {"loss_type": "dapo", "micro_batch_size": 2, **OURS_TOO}
    run = train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path / "ours", 2, **arguments)
    assert run.mode["dp"] == 2
    assert_equal(run, reference(loss_type="dapo"))


def test_rows_that_fill_no_generation_batch_are_refused(python_with_ray, tiny, four_rows, tmp_path):
    """ms-swift's driver goes round an empty loop, without a word."""
    eight = {"global_batch_size": 32, "external_plugins": OURS}  # prompts; there are four
    with pytest.raises(RunError, match="4 rows do not fill a generation batch of 8 prompts"):
        train_with_ray(python_with_ray, tiny("qwen2_5_vl"), four_rows, tmp_path, **eight)


def test_other_trainers_and_other_releases_stay(python_with_ray):
    """A trainer that a user has registered, and a worker without a method that we change."""
    command = [python_with_ray, HERE / "ray_join.py"]
    environment = {**os.environ, "PYTHONPATH": PATH}
    ran = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stderr[-3000:]
