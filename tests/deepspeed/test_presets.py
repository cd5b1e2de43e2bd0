"""The preset files: each key explained, taken by DeepSpeed, current in the docs."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeeds_own import refusal

from swift_grpo_ext import versions
from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.errors import EnvironmentMismatchError, SwiftGrpoExtError
from swift_grpo_ext.versions import installed_version
from tests.deepspeed.runs import a_run, lint
from tools import presets_page

NAMES = list(presets.available())
DOCS = Path(__file__).parents[2] / "docs"


def test_every_key_of_every_preset_is_explained_and_no_other():
    used = {key for name in NAMES for key, _ in presets_page.flatten(presets.load(name))}
    assert used == set(presets_page.REASONS)
    assert not used & set(presets_page.LEFT_OUT)
    assert set(NAMES) == set(presets_page.PURPOSE)


def test_the_page_of_the_docs_is_current():
    assert (DOCS / "deepspeed-presets.md").read_text(encoding="utf-8") == presets_page.as_markdown()


@pytest.mark.parametrize("name", NAMES)
def test_the_installed_deepspeed_takes_it(name):
    assert refusal(presets.load(name)) == ""


def test_deepspeed_refuses_what_it_does_not_know():
    config = presets.load("ext_zero3")
    config["zero_optimization"]["stage3_prefetch_bukket_size"] = 0
    assert "stage3_prefetch_bukket_size" in refusal(config)
    assert "stage" in refusal({"zero_optimization": {"stage": 7}})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("full_training", [True, False])
def test_the_lint_finds_nothing_in_it(name, full_training):
    nodes = 2 if name == "ext_zero3_hpz" else 1
    run = a_run(
        presets.load(name),
        installed_version("deepspeed"),
        nodes=nodes,
        ranks_per_node=8,
        gradient_accumulation_steps=4,
        full=full_training,
        vit_lr=1e-6,
        plugin=True,
    )
    assert lint(run) == []


@pytest.mark.parametrize("name", ["zero0", "zero1", "zero2", "zero3", "zero3_offload", "zero2_offload"])
def test_the_lint_finds_nothing_in_the_host_own_files_with_this_deepspeed(name):
    import swift

    path = Path(swift.__file__).parent / "config" / f"{name}.json"
    run = a_run(json.loads(path.read_text()), installed_version("deepspeed"), ranks_per_node=8)
    assert lint(run) == []


def test_resolve_takes_names_and_leaves_the_rest():
    assert presets.resolve("ext_zero3").endswith("ext_zero3.json")
    assert presets.resolve("zero3") == "zero3"
    assert presets.resolve("./ext.json") == "./ext.json"
    with pytest.raises(SwiftGrpoExtError, match="did you mean 'ext_zero3_offload'"):
        presets.resolve("ext_zero3_ofload")


def test_hpz_is_filled_with_the_ranks_of_a_node():
    config = presets.load("ext_zero3_hpz")
    presets.fill_hpz(config, 8)
    assert config["zero_optimization"]["zero_hpz_partition_size"] == 8
    presets.fill_hpz(config, 4)
    assert config["zero_optimization"]["zero_hpz_partition_size"] == 8
    presets.fill_hpz(None, 8)
    presets.fill_hpz({"zero_optimization": True}, 8)


def test_a_release_that_no_lane_runs_is_refused_where_a_run_uses_it(monkeypatch):
    from swift.arguments.sft_args import SftArguments

    presets.hook_into_host()
    real = versions.installed_version
    monkeypatch.setattr(
        versions, "installed_version", lambda name: "0.18.5" if name == "deepspeed" else real(name)
    )
    with pytest.raises(EnvironmentMismatchError, match=r"deepspeed 0\.18\.5 is outside"):
        SftArguments._init_deepspeed(SimpleNamespace(deepspeed="zero0"))
    SftArguments._init_deepspeed(SimpleNamespace(deepspeed=None, local_world_size=1))
