import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from swift_grpo_ext.group.shared_prefix import CannotPackError
from swift_grpo_ext.group.vision import FeatureCache, assign, fingerprints, trains_outside

GRIDS = st.lists(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)), max_size=3),
    min_size=1,
    max_size=4,
)


def patches(grids, merge=4):
    """Placeholders, pixels and grid as of Qwen2.5-VL; heights and widths count merged patches."""
    grid = torch.tensor([[t, 2 * h, 2 * w] for row in grids for t, h, w in row])
    torch.manual_seed(0)
    pixels = torch.randn(int(grid.prod(-1).sum()), 6)
    return placed(*(sum(t * 4 * h * w for t, h, w in row) // merge for row in grids)), pixels, grid


def placed(*counts):
    """Rows with so many placeholder tokens."""
    return torch.arange(max(counts) + 1) < torch.tensor(counts)[:, None]


@given(GRIDS.filter(any))
@settings(max_examples=100)
def test_each_row_gets_its_own_images(grids):
    images = assign(*patches(grids))
    assert [len(row) for row in images.rows] == [len(row) for row in grids]
    assert [image for row in images.rows for image in row] == list(range(len(images.sizes)))


def test_tiles_are_images_where_there_is_no_grid():
    pixels = torch.arange(5.0).reshape(5, 1, 1, 1).expand(5, 3, 2, 2)
    images = assign(placed(2 * 16, 0, 3 * 16), pixels, None)
    assert images.rows == (range(0, 2), range(2, 2), range(2, 5))
    assert images.of_row(1) == ()


def test_placeholders_that_end_inside_an_image_cannot_be_packed():
    _, pixels, grid = patches([[(1, 2, 2)], [(1, 2, 2)]])
    with pytest.raises(CannotPackError, match="inside an image"):
        assign(placed(5, 3), pixels, grid)


def test_an_image_without_a_patch_cannot_be_packed():
    positions = torch.full((2, 4, 2), -1)
    positions[0] = 1
    with pytest.raises(CannotPackError, match="do not fit 2 images"):
        assign(placed(4), torch.randn(2, 4, 6), positions, "image_position_ids")


def test_features_by_area_as_of_mistral():
    """Pixels are padded to one size; each row of patches is a run of its own."""
    sizes = torch.tensor([[56, 28], [28, 84]])
    placeholders = torch.tensor([[1, 0, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]]).bool()
    images = assign(placeholders, torch.randn(2, 3, 56, 84), sizes, "image_sizes")
    assert (images.rows, images.tokens) == ((range(0, 1), range(1, 2)), (2, 3))
    assert images.pixels_of([1]).shape == (1, 3, 56, 84)
    assert images.grid_of([1])["image_sizes"].tolist() == [[28, 84]]


def test_an_image_is_a_run_of_tokens_as_of_llava():
    placeholders = torch.tensor([[1, 1, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0]]).bool()
    images = assign(placeholders, torch.randn(6, 3, 4, 4), torch.tensor([[9, 9]] * 3), "image_sizes")
    assert (images.rows, images.tokens, images.sizes) == ((range(0, 2), range(2, 3)), (2, 3, 2), (2, 2, 2))


def test_images_cut_into_unknown_numbers_of_tiles_cannot_be_packed():
    with pytest.raises(CannotPackError, match="cut into tiles"):
        assign(placed(4, 4), torch.randn(4, 3, 4, 4), torch.tensor([[9, 9], [4, 50]]), "image_sizes")


def test_slices_stand_side_by_side_as_of_minicpm():
    sizes = torch.tensor([[4, 4], [4, 8], [4, 4]])
    pixels = torch.randn(1, 3, 14, 64 * 14)
    images = assign(placed(3, 1), pixels, sizes, "target_sizes")
    assert (images.rows, images.tokens) == ((range(0, 2), range(2, 3)), (1, 2, 1))
    assert images.pixels_of([1]).shape == (1, 3, 14, 32 * 14)
    assert torch.equal(images.pixels_of(range(3)), pixels)
    assert images.keys[0] != images.keys[2]


def test_patches_up_to_a_most_number_as_of_gemma_4():
    places = torch.full((2, 6, 2), -1)
    places[0, :4], places[1, :2] = 0, 0
    images = assign(placed(2, 1), torch.randn(2, 6, 3), places, "image_position_ids")
    assert (images.rows, images.tokens) == ((range(0, 1), range(1, 2)), (2, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_fingerprints_tell_images_apart(dtype):
    torch.manual_seed(0)
    one = torch.randn(8, 6).to(dtype)
    swapped = one[[1, 0, 2, 3, 4, 5, 6, 7]]
    nudged = one.clone()
    nudged.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()])[3, 2] ^= 1  # one bit
    pixels = torch.cat([one, swapped, nudged, one])
    keys = fingerprints(pixels, [8] * 4, None)
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3
    grids = torch.tensor([[1, 2, 4], [1, 4, 2]])
    assert len(set(fingerprints(torch.cat([one, one]), [8, 8], grids))) == 2


def mean_of_four(images, which):
    return images.pixels_of(which).reshape(-1, 4, 6).mean(1)


def test_the_tower_sees_each_image_once():
    tokens, pixels, grid = patches([[(1, 1, 1), (1, 1, 2)], [(1, 2, 1)]])
    images = assign(tokens.repeat(2, 1), pixels.repeat(2, 1), grid.repeat(2, 1))
    cache = FeatureCache(limit=2**20)
    missing = cache.missing(images, range(6))
    assert missing == [0, 1, 2]
    calls = []
    cache.encode(images, missing, lambda *asked: calls.append(asked[1]) or mean_of_four(*asked))
    assert (calls, cache.missing(images, range(6))) == ([[0, 1, 2]], [])
    found = torch.cat([cache.features[key] for key in images.keys])
    assert torch.equal(found, mean_of_four(images, range(6)))
    assert cache.bytes == found.nbytes // 2
    cache.clear()
    assert (cache.bytes, cache.missing(images, [4])) == (0, [4])


def test_what_does_not_fit_is_computed_but_not_kept():
    images = assign(*patches([[(1, 1, 1), (1, 1, 2)]]))
    cache = FeatureCache(limit=6 * 4)
    fresh = cache.encode(images, [0, 1], mean_of_four)
    assert [len(part) for part in fresh.values()] == [1, 2]
    assert cache.missing(images, [0, 1]) == [1]


def test_tiles_keep_their_shape():
    images = assign(placed(3 * 4), torch.randn(3, 3, 2, 2), None)

    def tower(images, which):
        return images.pixels_of(which).mean((1, 2, 3))[:, None, None].expand(-1, 4, 5)

    fresh = FeatureCache(2**20).encode(images, [2, 0], tower)
    assert [part.shape for part in fresh.values()] == [(1, 4, 5)] * 2


class Seeing(PreTrainedModel):
    def __init__(self):
        super().__init__(PretrainedConfig())
        self.tower, self.decoder, self.lm_head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.image_newline = nn.Parameter(torch.zeros(2))

    def get_decoder(self):
        return self.decoder

    def get_input_embeddings(self):
        return self.decoder

    def get_output_embeddings(self):
        return self.lm_head


def test_a_parameter_that_trains_outside_of_the_language_model_is_named():
    model = Seeing().requires_grad_(False)
    model.decoder.requires_grad_(True)
    model.lm_head.requires_grad_(True)
    assert trains_outside(model) == ""
    model.tower.bias.requires_grad_(True)
    assert trains_outside(model) == "tower.bias"
    model.tower.requires_grad_(False)
    model.image_newline.requires_grad_(True)
    assert trains_outside(model) == "image_newline"


def test_what_is_put_away_holds_each_image_once():
    tokens, pixels, grid = patches([[(1, 1, 1), (1, 1, 2)], [(1, 2, 1)]])
    images = assign(tokens.repeat(2, 1), pixels.repeat(2, 1), grid.repeat(2, 1))
    stored = images.stored_once()
    assert torch.equal(stored.pixels_of(range(6)), pixels.repeat(2, 1))
    assert len({part.data_ptr() for part in stored.parts}) == 3
    assert all(part.untyped_storage().nbytes() == part.nbytes for part in stored.parts)
