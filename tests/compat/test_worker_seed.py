"""A7: start functions of dataloader workers, with real workers."""

import functools
import itertools
import random
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from transformers.trainer_utils import seed_worker

from swift_grpo_ext import testing
from swift_grpo_ext.compat.worker_seed import SeededWorker, fitted
from swift_grpo_ext.compat.worker_seed import fix as PATCH
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.versions import installed_version
from tests.asserted_modes import asserting_mode


class Draws(Dataset):
    """Each item is what the worker's generators give."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(()).item(), random.random()


def draws(start, monkeypatch, rank=0, seed=0, epochs=1):
    monkeypatch.setenv("RANK", str(rank))
    torch.manual_seed(seed)
    loader = DataLoader(Draws(), num_workers=2, worker_init_fn=start, batch_size=None)
    return [tuple(loader) for _ in range(epochs)]


def old_seed_worker(_):
    """As in transformers up to 4.51.3."""
    from transformers import set_seed

    set_seed(torch.initial_seed() % 2**32)


def test_the_defect_the_cure_and_the_way_back(prove, monkeypatch):
    proof = prove(PATCH)
    message = "missing 2 required positional arguments: 'num_workers' and 'rank'"
    with pytest.raises(TypeError, match=message):
        draws(seed_worker, monkeypatch)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_workers'"):
        draws(functools.partial(old_seed_worker, num_workers=2, rank=0), monkeypatch)
    proof.on()
    draws(seed_worker, monkeypatch)
    draws(functools.partial(old_seed_worker, num_workers=2, rank=0), monkeypatch)
    proof.off()
    proof.drift()


@pytest.mark.parametrize(
    "start",
    [
        seed_worker,
        functools.partial(seed_worker, num_workers=2, rank=0),
        old_seed_worker,
        functools.partial(old_seed_worker, num_workers=2, rank=0),
    ],
)
def test_fits(start, monkeypatch):
    draws(fitted(start, 2), monkeypatch)


def test_a_function_that_fits_is_left_alone():
    partial = functools.partial(seed_worker, num_workers=2, rank=0)
    assert fitted(partial, 2) is partial
    assert fitted(old_seed_worker, 2) is old_seed_worker
    assert fitted(None, 2) is None
    assert fitted(print, 2) is print


@pytest.mark.skipif(installed_version("ms-swift") == "4.5.0", reason="this release wraps no start function")
def test_what_is_wrapped_by_the_host_is_fitted_inside():
    from swift.utils.utils import _WorkerInitWithPlugins

    wrapper = _WorkerInitWithPlugins(seed_worker, [])
    assert fitted(wrapper, 3) is wrapper
    assert isinstance(wrapper.inner, SeededWorker)
    assert wrapper.inner.facts["num_workers"] == 3


@pytest.mark.parametrize("bare", [seed_worker, functools.partial(old_seed_worker, num_workers=2)])
def test_streams_differ_between_ranks_workers_and_epochs_and_repeat_for_a_seed(bare, monkeypatch):
    def streams():
        found = {}
        for rank in (0, 1):
            start = bare
            if isinstance(bare, functools.partial):
                start = functools.partial(bare.func, num_workers=2, rank=rank)
            monkeypatch.setenv("RANK", str(rank))
            for epoch, items in enumerate(draws(fitted(start, 2), monkeypatch, rank, epochs=2)):
                for worker in (0, 1):
                    found[rank, worker, epoch] = items[worker::2]
        return found

    once = streams()
    assert len(once) == 8
    for one, other in itertools.combinations(once.values(), 2):
        assert one != other
    assert streams() == once


def test_survives_a_spawned_worker(monkeypatch):
    loader = DataLoader(
        Draws(),
        num_workers=1,
        worker_init_fn=fitted(seed_worker, 1),
        batch_size=None,
        multiprocessing_context="spawn",
    )
    assert len(list(loader)) == 4


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("bare", "missing 2 required positional arguments: 'num_workers' and 'rank'"),
        ("old", "unexpected keyword argument 'num_workers'"),
    ],
)
def test_both_directions_through_the_command(tiny_qwen, digits, tmp_path, start, words, ranks):
    def run(output, disabled=""):
        arguments = testing.grpo_arguments(
            tiny_qwen,
            digits.train,
            output,
            external_plugins=[Path(__file__).with_name("worker_starts.py"), plugin_file()],
            reward_funcs="format",
            dataloader_num_workers=2,
            seed=1,
        )
        variables = {"WORKER_START": start, "SWIFT_GRPO_EXT_DISABLE": disabled}
        words, mode = asserting_mode(arguments, ranks)
        return testing.run_swift("rlhf", words, {**mode, **variables}, ranks=ranks, timeout=250, check=False)

    healed = run(tmp_path / "healed")
    assert healed.returncode == 0, healed.tail[-3000:]
    assert len([row for row in testing.read_logging(tmp_path / "healed") if "loss" in row]) == 2
    stock = run(tmp_path / "stock", disabled=f"compat.{PATCH.id}")
    assert stock.returncode != 0
    assert words in stock.tail
