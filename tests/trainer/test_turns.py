"""Rows of several turns: a server's many rows are one pack, equal to ms-swift's chunks, and branches share turns."""

import pytest
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.trainer.passes import Passes
from tests.conftest import built_once
from tests.trainer import many_rows
from tests.trainer.runs import REWARD, STOCK, mixed_rows
from tests.trainer.runs import figures_in_double as figures

PLUGINS = [many_rows.__file__, plugin_file()]


@pytest.fixture
def rows(monkeypatch):
    """`rows("turns")`: the stand-in for a server is there, and answers so."""

    def rows(form):
        monkeypatch.setattr(HostGRPOTrainer, "_rollout", many_rows.rollout)
        monkeypatch.setenv("ROWS_OF", form)

    monkeypatch.setattr(
        HostGRPOTrainer, "_rollout", HostGRPOTrainer._rollout
    )  # put back whatever the plugin does
    return rows


@pytest.fixture
def seen(monkeypatch, packs):
    """Packs that models are given, into how many a micro-batch was cut, and how often ms-swift made a chunk."""
    seen = {"packs": packs, "chunks": 0, "numbers": []}
    chunked = HostGRPOTrainer.get_chunked_inputs

    def chunk(*args, **kwargs):
        seen["chunks"] += 1
        return chunked(*args, **kwargs)

    def packs_of(passes, batch):
        number = cut(passes, batch)
        seen["numbers"].append(number)
        return number

    cut = Passes._packs_of
    monkeypatch.setattr(HostGRPOTrainer, "get_chunked_inputs", chunk)
    monkeypatch.setattr(Passes, "_packs_of", packs_of)
    return seen


@pytest.mark.parametrize(
    ("family", "loss", "number"),
    [
        ("qwen2_5_vl", "dapo", 1),
        pytest.param("qwen2_5_vl", "grpo", 1, marks=pytest.mark.slow),
        pytest.param("llama", "fipo", 1, marks=pytest.mark.slow),
        pytest.param("qwen3_5", "cispo", 2, marks=pytest.mark.slow),
    ],
)
def test_rows_of_turns_equal_chunks_and_are_as_few_packs_as_have_the_tokens_of_a_chunk(
    family, loss, number, rows, seen, shared_folder, digits, tmp_path
):
    """Qwen3.5's template edits the turns before the last one, so its rows share less."""
    rows("turns")
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    dataset = digits.train if family != "llama" else mixed_rows(digits, shared_folder / "mixed_0.jsonl", 0)
    options = {
        "loss_type": loss,
        "reward_funcs": "first_answer",
        "external_plugins": PLUGINS,
        "max_steps": 2,
        "max_length": 2048,
        "beta": 0.04,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        **TINY[family].host,
    }
    stock = figures(model, dataset, tmp_path / "stock", STOCK, **options)
    assert seen["chunks"] > 0, "ms-swift had nothing to cut"
    assert not seen["packs"]
    seen["chunks"] = 0
    ours = figures(model, dataset, tmp_path / "ours", **options)
    assert seen["chunks"] == 0
    assert set(seen["numbers"]) == {number}
    for pack in seen["packs"]:
        assert pack.layout.length < pack.batch * pack.seq / 3
    assert stock["grad_norm"][0] > 0
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


@pytest.mark.parametrize("family", ["qwen2_5_vl", pytest.param("qwen3_5", marks=pytest.mark.slow)])
def test_branches_share_their_turns(family, rows, seen, shared_folder, digits, tmp_path):
    """Completions of ms-swift's own tree search: eight leaves, whose tokens are at most half of the rows' here."""
    rows("branches")
    model = built_once(
        shared_folder / f"tiny_{family}", lambda folder: testing.tiny_checkpoint(family, folder)
    )
    options = {
        "reward_funcs": "even_characters",
        "max_steps": 2,
        "max_length": 2048,
        "num_generations": 8,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        **TINY[family].host,
    }
    with_rewards = {"external_plugins": [many_rows.__file__, REWARD, plugin_file()]}
    stock = figures(model, digits.train, tmp_path / "stock", STOCK, **options, **with_rewards)
    ours = figures(model, digits.train, tmp_path / "ours", **options, **with_rewards)
    assert stock["grad_norm"][0] > 0
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name
    assert seen["packs"]
    for pack in seen["packs"]:
        assert max(node.level for node in pack.layout.nodes) >= 2
        assert pack.layout.length < pack.batch * pack.seq / 2
