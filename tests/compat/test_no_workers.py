"""No dataloader workers, on a host that keeps them by default (ms-swift 4.5.3)."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.compat import no_workers


def arguments(folder, workers):
    from swift.trainers.arguments import TrainingArguments

    return TrainingArguments(str(folder), dataloader_num_workers=workers, use_cpu=True)


def test_no_workers_persist_where_there_are_none(prove, tmp_path):
    proof = prove(no_workers.fix)
    if not no_workers.probe():
        assert not arguments(tmp_path, 0).dataloader_persistent_workers, "this host looks by itself"
        return
    assert arguments(tmp_path, 0).dataloader_persistent_workers
    proof.on()
    assert not arguments(tmp_path, 0).dataloader_persistent_workers
    assert arguments(tmp_path, 1).dataloader_persistent_workers
    proof.off()
    proof.drift()


@pytest.mark.parametrize(("workers", "persist"), [(0, False), (1, True)])
def test_the_cure_alone(workers, persist):
    class Arguments:
        dataloader_persistent_workers = True
        dataloader_num_workers = None

        def __post_init__(self):
            self.dataloader_num_workers = workers

    made = Arguments()
    no_workers.fix.fix(Arguments.__post_init__)(made)
    assert made.dataloader_persistent_workers is persist


def test_a_run_without_workers_trains(tiny_qwen, digits, tmp_path):
    whatever_the_host_wants = {"dataloader_num_workers": 0, "dataloader_persistent_workers": None}
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path / "out",
        reward_funcs="ext_format",
        max_steps=1,
        **whatever_the_host_wants,
    )
    testing.run_in_process("rlhf", arguments)
    assert [row for row in testing.read_logging(tmp_path / "out") if "loss" in row]
