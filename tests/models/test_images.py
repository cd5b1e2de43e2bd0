"""Every kind of image file: shown as it is, or refused by name; never silently blank."""

import base64
import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import ExifTags, Image

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.models import image_pipeline, images
from swift_grpo_ext.models.image_pipeline import ImagePipeline, PreparedImageCache
from tests.models.contract_cases import picture

GRADIENT = picture(24, 16)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decoded(data):
    return np.asarray(images.decode(data, "here")[0]).astype(int)


def no_network(url):
    raise AssertionError(f"asked for {url}")


def grey16():
    return Image.fromarray((np.arange(256, dtype=np.uint16) * 257).reshape(16, 16))


def test_16_bit_is_scaled_where_pillow_clips_to_white():
    assert np.asarray(grey16().convert("RGB")).mean() > 250, "the silent blank that this is about"
    assert (decoded(encoded(grey16()))[..., 0] == np.arange(256).reshape(16, 16)).all()
    assert (decoded(encoded(grey16(), "TIFF"))[..., 0] == np.arange(256).reshape(16, 16)).all()


@pytest.mark.parametrize(("bits", "most"), [(8, 255), (12, 4095)])
def test_16_bit_that_uses_fewer_bits_is_not_black(bits, most):
    values = np.linspace(0, most, 256).astype(np.uint16).reshape(16, 16)
    found = decoded(encoded(Image.fromarray(values)))[..., 0]
    assert abs(found - np.arange(256).reshape(16, 16)).max() <= 1, f"{bits} bits"


def test_transparency_is_composed_over_white_where_pillow_uncovers_black():
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.putpixel((3, 3), (0, 0, 0, 255))
    assert np.asarray(image.convert("RGB")).max() == 0, "the silent blank that this is about"
    found = decoded(encoded(image))
    assert found[3, 3].tolist() == [0, 0, 0]
    assert found[0, 0].tolist() == [255, 255, 255]


def test_palette_with_a_transparent_colour():
    image = Image.new("P", (4, 4), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.putpixel((1, 1), 1)
    found = decoded(encoded(image, transparency=0))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[1, 1].tolist() == [255, 0, 0]


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "1", "YCbCr"])
def test_other_modes_keep_the_picture(mode):
    kind = "TIFF" if mode in ("CMYK", "YCbCr") else "PNG"
    image = GRADIENT.convert(mode)
    data = encoded(image, kind)
    try:
        Image.open(io.BytesIO(data)).load()
    except OSError:  # Pillow 11, which old hosts ask for, cannot read the YCbCr TIFF that it writes
        with pytest.raises(DatasetRowError, match="cannot be decoded"):
            decoded(data)
        return
    expected = np.asarray(image.convert("RGB")).astype(int)
    assert np.abs(decoded(data) - expected).max() <= 1
    assert expected.std() > 20


def test_cmyk_jpeg_keeps_the_picture():
    found = decoded(encoded(GRADIENT.convert("CMYK"), "JPEG", quality=95))
    assert np.abs(found - np.asarray(GRADIENT).astype(int)).mean() < 6


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_counts(kind):
    second = Image.new("RGB", GRADIENT.size)
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(GRADIENT, kind, save_all=True, append_images=[second], duration=50, **options)
    image, frames = images.decode(data, "here")
    assert frames == 2
    assert np.abs(np.asarray(image).astype(int) - np.asarray(GRADIENT).astype(int)).mean() < 25


@pytest.mark.parametrize(("orientation", "warnings"), [(1, 0), (6, 1)])
def test_pictures_with_an_exif_orientation_are_warned_of(orientation, warnings, monkeypatch):
    said = []
    monkeypatch.setattr(image_pipeline, "logger", SimpleNamespace(warning_once=said.append))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    image_pipeline._decode(encoded(GRADIENT, "JPEG", exif=exif), "key", "here")
    assert len(said) == warnings
    assert all("mogrify -auto-orient" in line for line in said)


def test_the_first_page_of_a_document_outlives_its_file():
    data = encoded(GRADIENT, "TIFF", save_all=True, append_images=[GRADIENT.rotate(90)])
    image, pages = images.decode(data, "here")
    assert pages == 2
    assert np.asarray(image.resize((12, 8))).std() > 20


def test_floats_are_refused():
    with pytest.raises(DatasetRowError, match="32-bit floats"):
        images.to_rgb(GRADIENT.convert("F"), "here")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_cut_file_is_refused(kind, part):
    data = encoded(picture(120, 90), kind)
    with pytest.raises(DatasetRowError, match=r"cannot be decoded.*\[here\]"):
        images.decode(data[: int(len(data) * part)], "here")


def test_what_is_no_image_is_refused():
    for data in (b"<html>404</html>", b"\0" * 100, b"\x89PNG\r\n\x1a\n" + b"\xff" * 50):
        with pytest.raises(DatasetRowError, match="cannot be decoded"):
            images.decode(data, "here")


def test_what_is_no_image_is_said_in_words():
    with pytest.raises(
        DatasetRowError, match=r"not an image, or of a kind that Pillow does not read \[a.svg\]$"
    ):
        images.decode(b"<svg/>", "a.svg")


def test_pictures_that_differ_by_their_palette_are_two():
    def keep(image, *_):
        return image

    pipeline = ImagePipeline(PreparedImageCache(2**20), keep, keep)
    red, blue = (Image.new("P", (4, 4)) for _ in range(2))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    assert [pipeline.load(image).getpixel((0, 0)) for image in (red, blue)] == [(255, 0, 0), (0, 0, 255)]
    blue.info["transparency"] = 0
    assert pipeline.load(blue).getpixel((0, 0)) == (255, 255, 255)


def test_drawing_on_an_image_afterwards_does_not_change_what_was_loaded():
    def keep(image, *_):
        return image

    pipeline = ImagePipeline(PreparedImageCache(2**20), keep, keep)
    image, same = GRADIENT.copy(), GRADIENT.copy()
    pipeline.load(image)
    image.paste((0, 0, 0), (0, 0, 24, 16))
    assert np.asarray(pipeline.load(same)).std() > 20


def test_a_pillow_image_that_cannot_be_read_is_refused():
    def keep(image, *_):
        return image

    pipeline = ImagePipeline(PreparedImageCache(2**20), keep, keep)
    data = encoded(picture(120, 90))
    image = Image.open(io.BytesIO(data[: len(data) // 2]))
    with pytest.raises(DatasetRowError, match=r"cannot be decoded.* image of \d+x\d+ pixels\]"):
        pipeline.load(image)


def test_a_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DatasetRowError, match="DecompressionBombError"):
        images.decode(encoded(picture(50, 50)), "here")


def test_every_form_of_a_source(tmp_path, monkeypatch):
    data = encoded(GRADIENT)
    path = tmp_path / "a.png"
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    forms = [str(path), data, text, f"data:image/png;base64,{text}", {"bytes": data, "path": None}]
    spaced = tmp_path / "a b ü 图.png"
    spaced.write_bytes(data)
    forms += [path, bytearray(data), {"path": spaced}, f"file://{path}", f"file://{spaced}", spaced.as_uri()]
    for source in [*forms, {"bytes": None, "path": str(path)}]:
        assert images.read_source(source, no_network) == data
    monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path))
    assert images.read_source("a.png", no_network) == data
    assert (
        images.read_source("https://host/a.png", lambda url: io.BytesIO(url.encode()))
        == b"https://host/a.png"
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("no/such/file.png", r"image file not found \[no/such/file.png\]"),
        ("images12/0001abcd", "image file not found"),  # what the host takes for base64
        ("", "image is empty"),
        (None, "image is empty"),
        ({"bytes": None, "path": None}, "image is empty"),
        ("data:image/png;base64,", "0 bytes"),
        ("data:image/png;base64,!!!", "cannot be loaded"),
        ("nul\0byte.png", "not found"),
        ("file:///no/such%20file.png", r"not found \[file:///no/such%20file.png\]"),
        ({"url": "a.png"}, r"empty \[a dict of url\]"),
        (np.zeros((2, 2, 3)), r"not an image \[ndarray in the row\]"),
        (5, r"not an image \[int in the row\] -> give a path"),
    ],
)
def test_what_cannot_be_read_is_named(source, problem):
    with pytest.raises(DatasetRowError, match=problem):
        images.read_source(source, no_network)


def test_a_folder_is_called_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path))
    (tmp_path / "scans").mkdir()
    for path in ("scans", str(tmp_path / "scans"), f"file://{tmp_path}/scans"):
        with pytest.raises(
            DatasetRowError, match=r"image path is a folder \[.*scans\] -> name an image file"
        ):
            images.read_source(path, no_network)


def test_an_empty_file_and_a_dead_network_are_named(tmp_path):
    (tmp_path / "empty.png").touch()
    with pytest.raises(DatasetRowError, match=r"0 bytes.*empty\.png"):
        images.read_source(str(tmp_path / "empty.png"), no_network)

    def unreachable(url):
        raise ConnectionError("no route")

    with pytest.raises(DatasetRowError, match=r"no route \[https://host/a.png\]"):
        images.read_source("https://host/a.png", unreachable)


def test_a_changed_file_has_another_key(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(GRADIENT))
    before = images.source_key(str(path))
    assert images.source_key(str(path)) == images.source_key({"path": str(path), "bytes": None}) == before
    path.write_bytes(encoded(picture(25, 16)))
    assert images.source_key(str(path)) != before


def test_long_base64_does_not_fill_the_message():
    assert images.describe("A" * 5000) == "5000 characters of base64 in the row"
    assert images.describe(b"123") == "3 bytes in the row"
