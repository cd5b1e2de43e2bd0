import pytest
import torch
from torch.nn.functional import log_softmax

from swift_grpo_ext.group import interface
from swift_grpo_ext.group.forward import packed_scores, row_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import images_in_order, pack_inputs
from swift_grpo_ext.group.shared_prefix import CannotPackError, build_pack, read_rows
from swift_grpo_ext.group.vision import assign, image_numbers
from tests.group.models import FAMILIES, IMAGE, VOCAB, Picture, batch_of
from tests.precision import DOUBLE, in_float64

CAT, DOG, COW = Picture(1), Picture(2), Picture(3)
ASK_CAT, ASK_DOG = [5, CAT, 6, 7], [5, DOG, 6, 7]
BATCHES = {
    "one group": [(ASK_CAT, [8, 9, 10]), (ASK_CAT, [11, 12, 13]), (ASK_CAT, [14, 15, 16])],
    "ragged": [(ASK_CAT, [8]), (ASK_CAT, [9, 10, 11, 12, 13]), (ASK_CAT, [14, 15])],
    "several groups": [(ASK_CAT, [8, 9]), (ASK_DOG, [9, 8, 7]), (ASK_CAT, [10]), (ASK_DOG, [11, 12])],
    "partial group": [(ASK_CAT, [8, 9]), (ASK_CAT, [9, 8, 7]), (ASK_DOG, [10, 11])],
    "nothing shared": [(ASK_CAT, [8, 9]), (ASK_DOG, [10])],
    "same text, other image": [([CAT, 6], [8, 9]), ([CAT, 6], [9]), ([DOG, 6], [8, 9]), ([DOG, 6], [9])],
    "text only": [([5, 6], [8, 9, 10]), ([5, 6], [11]), ([7], [12, 13])],
    "text and images": [([5, 6], [8, 9, 10]), (ASK_CAT, [11]), (ASK_CAT, [12, 13])],
    "several images": [([CAT, 5, DOG, COW, 6], [8, 9]), ([CAT, 5, DOG, COW, 6], [10, 11, 12])],
    "tokens without a loss": [(ASK_CAT, ([8, 9, 10, 11], [1, 0, 0, 1])), (ASK_CAT, ([12, 13], [1, 1]))],
}


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request):
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def model(family):
    interface.install("sdpa")
    return family.model().double()


@pytest.fixture(autouse=True)
def _double():
    with in_float64():
        yield


def stock_logps(model, inputs, mask):
    """Log-softmax of whole logits, as the host's trainer computes them."""
    keep = mask.shape[1]
    logits = model(**inputs, use_cache=False, logits_to_keep=keep + 1).logits[:, :-1]
    targets = inputs["input_ids"][:, -keep:, None]
    return log_softmax(logits, -1).gather(-1, targets)[..., 0] * mask


def packed_logps(model, inputs, mask, backend="sdpa", **options):
    placeholders = inputs["input_ids"] == IMAGE
    images = None
    if "pixel_values" in inputs:
        images = assign(placeholders, inputs["pixel_values"], inputs.get("image_grid_thw"))
    numbers = images and image_numbers([images], inputs["input_ids"])
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask, numbers)
    pack = build_pack(rows, inputs["input_ids"], mask, PackForm(backend))
    media = {}
    if images:
        which = images_in_order(images, pack)
        media = {"pixel_values": images.pixels_of(which), **images.grid_of(which)}
    return packed_scores(
        model, model.lm_head, pack_inputs(inputs, pack, media), pack, vocab_size=VOCAB, **options
    )


def gradients(model, logps):
    weights = torch.linspace(0.5, 1.5, logps.numel()).view_as(logps)
    model.zero_grad()
    (logps * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def relative(ours, stock):
    difference = torch.stack([(ours[name] - stock[name]).norm() for name in stock]).norm()
    return float(difference / torch.stack([grad.norm() for grad in stock.values()]).norm())


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("rows", sorted(BATCHES))
def test_a_pack_has_the_log_probs_and_gradients_of_its_rows(family, model, rows, side):
    inputs, mask = batch_of(family, model, BATCHES[rows], side)
    stock = stock_logps(model, inputs, mask)
    ours = packed_logps(model, inputs, mask)[..., 0]
    torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
    expected, got = gradients(model, stock), gradients(model, ours)
    assert expected.keys() == got.keys()
    assert relative(got, expected) < DOUBLE


@pytest.mark.parametrize("checkpointing", [False, {"use_reentrant": False}, {"use_reentrant": True}])
@pytest.mark.parametrize("backend", ["dense", "sdpa"])
def test_gradient_checkpointing_and_backends(family, model, backend, checkpointing):
    inputs, mask = batch_of(family, model, BATCHES["ragged"])
    expected = gradients(model, stock_logps(model, inputs, mask))
    if checkpointing:
        model.gradient_checkpointing_enable(checkpointing)
        model.enable_input_require_grads()
    try:
        got = gradients(model, packed_logps(model, inputs, mask, backend)[..., 0])
    finally:
        model.gradient_checkpointing_disable()
        if checkpointing:
            model.disable_input_require_grads()
    assert relative(got, expected) < DOUBLE


def test_rows_in_chunks_have_the_same_log_probs_and_gradients(family, model):
    inputs, mask = batch_of(family, model, BATCHES["partial group"], "left")
    stock = stock_logps(model, inputs, mask)
    ours = row_scores(
        model,
        model.lm_head,
        {**inputs, "use_cache": False, "logits_to_keep": mask.shape[1] + 1},
        mask,
        vocab_size=VOCAB,
        chunk_bytes=4 * VOCAB * 2,
    )[..., 0]
    torch.testing.assert_close(ours, stock, atol=DOUBLE, rtol=0)
    assert relative(gradients(model, ours), gradients(model, stock)) < DOUBLE


def test_a_model_that_does_not_know_logits_to_keep(family, model):
    inputs, mask = batch_of(family, model, BATCHES["ragged"])
    expected = packed_logps(model, inputs, mask)

    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    pack = build_pack(rows, inputs["input_ids"], mask, PackForm("sdpa"))
    images = assign(inputs["input_ids"] == IMAGE, inputs["pixel_values"], inputs.get("image_grid_thw"))
    media = {"pixel_values": images.pixels_of(images.rows[0]), **images.grid_of(images.rows[0])}
    packed = pack_inputs(inputs, pack, media)
    packed.pop("logits_to_keep")
    torch.testing.assert_close(packed_scores(model, model.lm_head, packed, pack, vocab_size=VOCAB), expected)


def test_entropy_and_temperature(family, model):
    inputs, mask = batch_of(family, model, BATCHES["ragged"])
    keep = mask.shape[1]
    with torch.no_grad():
        logits = model(**inputs, logits_to_keep=keep + 1).logits[:, :-1] / 0.7
        scores = packed_logps(model, inputs, mask, temperature=0.7, with_entropy=True)
    logps = log_softmax(logits, -1)
    expected = -(logps.exp() * logps).sum(-1) * mask
    torch.testing.assert_close(scores[..., 1], expected, atol=DOUBLE, rtol=0)
    targets = inputs["input_ids"][:, -keep:, None]
    torch.testing.assert_close(scores[..., 0], logps.gather(-1, targets)[..., 0] * mask, atol=DOUBLE, rtol=0)


def test_an_unknown_input_cannot_be_packed(family, model):
    inputs, mask = batch_of(family, model, BATCHES["text only"])
    with pytest.raises(CannotPackError, match="audio_values"):
        packed_logps(model, {**inputs, "audio_values": torch.zeros(1)}, mask)


def test_what_packs_cannot_do_is_named(model):
    config = model.config.get_text_config()
    assert interface.unsupported(config) == ""
    for field, value, reason in [
        ("_attn_implementation", "eager", "'eager'"),
        ("layer_types", ["full_attention", "chunked_attention"], "chunked_attention"),
        ("attention_dropout", 0.1, "attention_dropout 0.1"),
    ]:
        other = type(config).from_dict(config.to_dict())
        other._attn_implementation = "sdpa"
        setattr(other, field, value)
        assert reason in interface.unsupported(other)
