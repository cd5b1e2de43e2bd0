"""ms-swift's own tree search, with the trainer's engine for a server: equal to rows, at half of the tokens.

No wheel has ms-swift's examples: ``make test-treepo`` takes them from a checkout, with our patch of them.
"""

import asyncio
import importlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.utils import gather_object
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext import testing
from swift_grpo_ext.testing.families import TINY
from tests.conftest import built_once
from tests.trainer.runs import STOCK
from tests.trainer.runs import figures_in_double as figures

TREEPO = "examples/train/grpo/plugin/treepo"
PATCH = Path(__file__).parents[2] / "upstream/treepo-example/fix.patch"
pytestmark = [
    pytest.mark.lane,
    pytest.mark.skipif(not os.environ.get("MS_SWIFT"), reason="MS_SWIFT=a checkout of ms-swift"),
]


class Engine:
    """The trainer's engine, as the scheduler of a server sees one."""

    def __init__(self, engine):
        self.engine = engine

    async def infer_async(self, request, config):
        return self.engine.infer([request], config, use_tqdm=False)[0]

    async def _batch_infer_stream(self, tasks, *_):
        return await asyncio.gather(*tasks)


@pytest.fixture
def search(monkeypatch, tmp_path):
    """Completions come from a search: one first turn for each prompt, eight leaves of three turns."""
    shutil.copytree(Path(os.environ["MS_SWIFT"]) / TREEPO, tmp_path / TREEPO)
    with open(PATCH, "rb") as patch:
        subprocess.run(["patch", "-p1", "--quiet", "--fuzz=0"], cwd=tmp_path, stdin=patch, check=True)
    monkeypatch.syspath_prepend(str(tmp_path / TREEPO))
    for name in ("tree_rollout", "tree_rollout_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    scheduler = importlib.import_module("tree_rollout_plugin").TreeRolloutScheduler

    def rollout(trainer, samples, request_config, is_global_inputs=False):
        requests = gather_object(trainer.samples2requests(samples))
        if hasattr(trainer, "rollout"):
            trainer.rollout.expect(requests)
        with torch.random.fork_rng():
            torch.manual_seed(trainer.state.global_step)
            random.seed(trainer.state.global_step)
            leaves = scheduler(Engine(trainer.engine), max_turns=3).async_infer(
                requests, request_config, use_tqdm=False
            )
            return asyncio.run(leaves)

    monkeypatch.setattr(HostGRPOTrainer, "_rollout", rollout)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_5", "llama"])
def test_a_search_trains_as_its_rows_do(family, search, packs, shared_folder, digits, tmp_path):
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    options = {
        "max_steps": 2,
        "max_length": 2048,
        "max_completion_length": 48,
        "num_generations": 8,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        **TINY[family].host,
    }
    stock = figures(model, digits.train, tmp_path / "stock", STOCK, **options)
    assert not packs
    ours = figures(model, digits.train, tmp_path / "ours", **options)
    assert stock["grad_norm"][0] > 0
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    forwarded = sum(pack.layout.length for pack in packs)
    of_rows = sum(pack.batch * pack.seq for pack in packs)
    print(f"{family}: {forwarded} tokens for {of_rows} of the rows")
    assert packs
    assert forwarded < of_rows / 2
