"""Rollouts by transformers: each prompt once, each image once, and the same tokens as stock's."""

import json
from functools import partial

import pytest
from PIL import Image

from swift_grpo_ext import testing
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from tests.conftest import built_once
from tests.trainer.runs import STOCK, figures, told

# The most likely token, always; temperature 0 would divide the logits by it.
GREEDY = {"top_k": 1, "per_device_train_batch_size": 8, "max_steps": 1, "beta": 0}


@pytest.fixture(params=["qwen2_5_vl", "ovis2"])
def model(request, tiny_qwen, tiny_ovis):
    return {"qwen2_5_vl": tiny_qwen, "ovis2": tiny_ovis}[request.param]


@pytest.fixture
def seen(monkeypatch):
    """Rows of each prefill, and rows of pixels that the tower encoded for them."""
    found = {"prefill": [], "pixels": 0}
    host = GRPOTrainer._engine_infer

    def watched(self, *args, **kwargs):
        base = self.template.get_base_model(self.accelerator.unwrap_model(self.model))
        tower = base.get_submodule(family_of(base.config).vision_tower[0])
        inner = getattr(tower, "patch_embed", None) or tower.transformer

        def image_encoded(module, args, output):
            found["pixels"] += len(args[0])

        def text_called(module, args, kwargs):
            batch, length = kwargs["inputs_embeds"].shape[:2]
            if length > 1:
                found["prefill"].append(batch)

        hooks = [base.get_decoder().register_forward_pre_hook(text_called, with_kwargs=True)]
        hooks.append(inner.register_forward_hook(image_encoded))
        try:
            outputs = host(self, *args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        found.setdefault("tokens", []).append([out.response.choices[0].token_ids for out in outputs])
        return outputs

    monkeypatch.setattr(GRPOTrainer, "_engine_infer", watched)
    return found


def rollouts(seen, model, dataset, output, switches, **overrides):
    seen.update(prefill=[], pixels=0, tokens=[])
    figures(model, dataset, output, switches, **{**GREEDY, **overrides})
    return {name: list(value) if isinstance(value, list) else value for name, value in seen.items()}


@pytest.mark.parametrize(
    "overrides", [{}, pytest.param({"tuner_type": "lora"}, marks=pytest.mark.slow)], ids=["full", "lora"]
)
def test_the_same_tokens_from_each_prompt_once(model, overrides, seen, digits, tmp_path):
    stock = rollouts(seen, model, digits.train, tmp_path / "stock", STOCK, **overrides)
    ours = rollouts(seen, model, digits.train, tmp_path / "ours", {}, **overrides)
    assert ours["tokens"] == stock["tokens"]
    assert stock["prefill"] == [8]
    assert ours["prefill"] == [2]
    assert 0 < ours["pixels"] == stock["pixels"] / 4


def test_a_switch_turns_it_off(tiny_qwen, seen, digits, tmp_path):
    ours = rollouts(seen, tiny_qwen, digits.train, tmp_path, {"DISABLE": "trainer.shared_prefill"})
    assert ours["prefill"] == [8]


@pytest.fixture
def films(digits, tmp_path):
    """Rows with a video of four frames each, every other one with an image beside it."""
    paths = [json.loads(line)["images"][0] for line in digits.train.read_text().splitlines()]
    rows = [
        {
            "messages": [{"role": "user", "content": f"{'<image>' * (at % 2)}<video>Which digit? {at}"}],
            "videos": [paths[4 * at : 4 * at + 4]],
            "images": paths[: at % 2],
        }
        for at in range(4)
    ]
    path = tmp_path / "films.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_videos_are_shared_too(family, seen, films, tmp_path):
    own = {"model_type": "qwen3_vl", "template": "qwen3_vl"} if family == "qwen3_vl" else {}
    build = partial(testing.tiny_checkpoint, family) if own else testing.tiny_qwen2_5_vl
    checkpoint = build(tmp_path / "model")
    stock = rollouts(seen, checkpoint, films, tmp_path / "stock", STOCK, **own)
    with told() as messages:
        ours = rollouts(seen, checkpoint, films, tmp_path / "ours", {}, **own)
    assert ours["tokens"] == stock["tokens"]
    assert (stock["prefill"], ours["prefill"]) == ([8], [2])
    assert 0 < ours["pixels"] == stock["pixels"] / 4
    assert not [line for line in messages if "stock way" in line or "computed once for each" in line]


@pytest.mark.parametrize(
    "switches",
    [{}, pytest.param({"DISABLE": "trainer.shared_prefill"}, marks=pytest.mark.slow)],
    ids=["shared", "each"],
)
def test_qwen3_vl_is_sampled_with_its_images_under_deepspeed(seen, digits, tmp_path, monkeypatch, switches):
    """F24: with DeepSpeed ms-swift's own forward runs, which does not look at what generate encoded."""
    options = {"model_type": "qwen3_vl", "template": "qwen3_vl"}
    checkpoint = testing.tiny_checkpoint("qwen3_vl", tmp_path / "model")
    without = rollouts(seen, checkpoint, digits.train, tmp_path / "without", switches, **options)
    monkeypatch.setattr("swift.model.models.qwen.is_deepspeed_enabled", lambda: True)
    under = rollouts(seen, checkpoint, digits.train, tmp_path / "under", switches, **options)
    assert under["tokens"] == without["tokens"]
    assert under["pixels"] >= without["pixels"] > 0


@pytest.mark.parametrize("name", [pytest.param("mistral3", marks=pytest.mark.slow), "llava_onevision"])
def test_prompts_whose_images_do_not_stack(name, shared_folder, tmp_path):
    """ms-swift stops here: its engine makes one batch of all requests, and pixels of two sizes are none."""
    model = built_once(shared_folder / f"tiny_{name}", lambda folder: testing.tiny_checkpoint(name, folder))
    rows = []
    for number, size in enumerate([(56, 56), (84, 112)]):
        Image.new("RGB", size, (40 * number, 90, 200)).save(tmp_path / f"{number}.png")
        messages = [{"role": "user", "content": f"<image>What is it, for number {number}?"}]
        rows.append({"messages": messages, "images": [str(tmp_path / f"{number}.png")]})
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    logged = figures(
        model, data, tmp_path / "run", **{"gradient_accumulation_steps": 2, "max_steps": 2, **TINY[name].host}
    )
    assert len(logged["loss"]) == 2
