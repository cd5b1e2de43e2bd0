"""What is spared is not computed, and nothing that anyone reads changes by it."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode

from swift_grpo_ext.group import interface, recompute
from swift_grpo_ext.group.forward import packed_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import pack_inputs
from swift_grpo_ext.group.pack_memory import TextSizes, layers_to_keep, way_trained
from swift_grpo_ext.group.recompute import reduced_compute
from swift_grpo_ext.group.shared_prefix import Pack, build_pack, read_rows
from tests.group.models import FAMILIES, VOCAB, batch_of
from tests.group.stars import star_layout
from tests.precision import DOUBLE, in_float64

ROWS = [([5, 6, 7, 8, 9], [10, 11, 12, 13]), ([5, 6, 7, 8, 9], [14, 15]), ([16, 17], [18, 19, 20])]
LAYERS = 2


def pack_of(length, batch, seq):
    """A pack of so many tokens of one prompt, in the place of ``batch`` rows of ``seq`` tokens."""
    layout = star_layout([(length, ())], PackForm("sdpa"))
    index, only = torch.tensor([3]), torch.tensor([0])
    return Pack(layout, torch.arange(length), index, only, only, index, batch, seq, keep=1)


class Calls(TorchDispatchMode):
    """Counts rows that go through matrix products."""

    def __init__(self):
        super().__init__()
        self.rows = self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("mm", "addmm"):
            self.products += 1
            self.rows += len(out)
        return out


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def model(request):
    interface.install("sdpa")
    family = FAMILIES[request.param]
    model = family.model().double()
    model.enable_input_require_grads()
    return family, model


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


@pytest.fixture(params=[True, False], ids=["reentrant", "not reentrant"])
def checkpointing(request, model):
    model[1].gradient_checkpointing_enable({"use_reentrant": request.param})
    yield
    model[1].gradient_checkpointing_disable()


def run(setting, spare, grad=True):
    """Scores, gradients, and calls of the forward and of the backward pass."""
    family, model = setting
    inputs, mask = batch_of(family, model, ROWS)
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    pack = build_pack(rows, inputs["input_ids"], mask, PackForm("sdpa"))
    context = nullcontext() if spare is None else reduced_compute(model.get_decoder(), pack, spare)
    model.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(grad), context, Calls() as forward:
        scores = packed_scores(model, model.lm_head, pack_inputs(inputs, pack, {}), pack, vocab_size=VOCAB)
    if not grad:
        return scores, {}, forward, None
    with Calls() as backward:
        (scores[..., 0] * torch.linspace(0.5, 1.5, mask.numel()).view_as(mask)).sum().backward()
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return scores.detach(), found, forward, backward


def check_equal(one, other):
    torch.testing.assert_close(one[0], other[0], atol=DOUBLE, rtol=0)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(other[1][name], gradient, atol=DOUBLE, rtol=DOUBLE)


@pytest.mark.usefixtures("checkpointing")
@pytest.mark.parametrize("spare", [True, False])
def test_scores_and_gradients_stay(model, spare):
    check_equal(run(model, None), run(model, spare))


def test_scores_and_gradients_stay_without_checkpointing(model):
    check_equal(run(model, None), run(model, True))


@pytest.mark.usefixtures("checkpointing")
def test_the_last_layer_is_not_computed_again_nor_the_last_product_of_another(model, monkeypatch):
    whole, spared = run(model, None)[3], run(model, False)[3]
    assert spared.products == whole.products  # nothing is spared where parameters are gathered
    monkeypatch.setattr("swift_grpo_ext.group.recompute.layers_to_keep", lambda *_: 1)
    one = run(model, True)[3]
    assert whole.products - one.products in (6, 8)  # a layer has 7; reentrant kinds compute the last too
    monkeypatch.setattr("swift_grpo_ext.group.recompute.layers_to_keep", lambda *_: LAYERS)
    assert one.products - run(model, True)[3].products == 6


def test_the_last_mlp_takes_predicting_tokens_only(model):
    tokens = 5 + 3 + 1 + 2 + 2  # of two prompts and three completions, whose last tokens predict nothing
    predicting = tokens - 4 - 1
    whole, spared = run(model, None, grad=False), run(model, True, grad=False)
    assert whole[2].rows - spared[2].rows == 3 * (tokens - predicting)
    torch.testing.assert_close(whole[0], spared[0], atol=DOUBLE, rtol=0)


@pytest.mark.usefixtures("checkpointing")
def test_everything_comes_back(model):
    layers = model[1].get_decoder().layers
    before = [dict(vars(layer)) for layer in layers]
    pack = pack_of(200, batch=8, seq=100)
    with pytest.raises(RuntimeError), reduced_compute(model[1].get_decoder(), pack, True):
        raise RuntimeError
    assert [dict(vars(layer)) for layer in layers] == before
    assert "forward" not in vars(layers[-1].mlp)


def kept(model, rows):
    """How many layers a forward with gradients keeps for a pack of 300 tokens in the place of so many."""
    decoder, seen = model.get_decoder(), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            recompute, "without_reentrance", lambda layers, kept: seen.append(kept) or nullcontext()
        )
        with recompute.reduced_compute(decoder, pack_of(300, batch=1, seq=rows), True):
            pass
    assert seen[0] == list(decoder.layers)[-len(seen[0]) :]
    return len(seen[0])


@pytest.mark.parametrize(("rows", "layers"), [(300, 1), (800, 1), (8000, 2)])
def test_no_more_layers_are_kept_than_sharing_makes_room_for(model, rows, layers):
    assert kept(model[1], rows) == layers


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_take_room_of_what_sharing_has_saved(family):
    model = FAMILIES[family].model()
    lengths = range(300, 3000, 10)
    before = [kept(model, rows) for rows in lengths]
    config = LoraConfig(
        r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "gate_proj", "down_proj"]
    )
    adapted = get_peft_model(model, config).get_base_model()
    after = [kept(adapted, rows) for rows in lengths]
    assert all(fewer <= more for fewer, more in zip(after, before, strict=True))
    assert min(after) == 1
    assert sum(after) < sum(before)


def test_experts_take_room_too_though_they_are_no_linear_layers():
    """Of Qwen3-VL-30B-A3B: eight of 128 experts for each token, fused into one tensor."""
    dense = TextSizes(layers=48, hidden=2048, query=4096, kv=512, intermediate=768, vocab=151936)
    experts = replace(dense, intermediate=8 * 768, routed=8)
    few, many = (layers_to_keep(sizes, 8 * 3072, 2048 + 8 * 1024, "full") for sizes in (experts, dense))
    assert (few, many) == (1, 3)


def test_a_frozen_norm_does_not_make_it_lora():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.LayerNorm(8))
    layer[1].requires_grad_(False)
    assert way_trained(layer.parameters()) == "full"
    layer[0].requires_grad_(False)
    adapter = torch.nn.Linear(8, 1, bias=False)
    assert way_trained([*layer.parameters(), *adapter.parameters()]) == "lora"
