"""Photos become inputs as stated: layout, order, range, normalisation, size."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from verax.base.errors import InputError, UsageError
from verax.images import ImageOptions, read_image
from verax.ir.types import TensorType

ROWS, COLUMNS = 5, 7


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (ROWS, COLUMNS, 3), np.uint8)


@pytest.fixture
def png(tmp_path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def type_of(text: str) -> TensorType:
    return TensorType.parse(text)


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        (f"float32[1, 3, {ROWS}, {COLUMNS}]", (2, 0, 1)),
        (f"float32[n, 3, {ROWS}, {COLUMNS}]", (2, 0, 1)),
        (f"float32[1, {ROWS}, {COLUMNS}, 3]", (0, 1, 2)),
        (f"float32[3, {ROWS}, {COLUMNS}]", (2, 0, 1)),
        (f"float32[{ROWS}, {COLUMNS}, 3]", (0, 1, 2)),
    ],
)
def test_layout_follows_from_the_type(
    png: Path, pixels: np.ndarray, text: str, axes: tuple[int, ...]
) -> None:
    found = read_image(png, type_of(text)).array
    expected = (pixels.transpose(axes) / 255).astype(np.float32)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    assert found.ndim == type_of(text).rank


def test_bytes_stay_bytes(png: Path, pixels: np.ndarray) -> None:
    found = read_image(png, type_of(f"uint8[1, {ROWS}, {COLUMNS}, 3]")).array
    np.testing.assert_array_equal(found[0], pixels)


def test_bytes_with_sign_are_moved_by_128(png: Path, pixels: np.ndarray) -> None:
    found = read_image(png, type_of(f"int8[1, {ROWS}, {COLUMNS}, 3]"))
    np.testing.assert_array_equal(found.array[0].astype(int), pixels.astype(int) - 128)
    assert any("less 128" in step for step in found.steps)
    with pytest.raises(UsageError, match="do not apply"):
        read_image(png, type_of("int8[1, 3, 5, 7]"), ImageOptions(low=0.0, high=1.0))


def test_bgr_reverses_the_channels(png: Path, pixels: np.ndarray) -> None:
    found = read_image(
        png, type_of(f"uint8[1, 3, {ROWS}, {COLUMNS}]"), ImageOptions(order="BGR")
    ).array
    np.testing.assert_array_equal(found[0, 0], pixels[:, :, 2])


def test_range_mean_and_std_apply_in_this_order(png: Path, pixels: np.ndarray) -> None:
    options = ImageOptions(low=-1, high=1, mean=(0.25, 0.5, 0.125), std=(0.5, 2.0, 4.0))
    found = read_image(png, type_of(f"float32[1, 3, {ROWS}, {COLUMNS}]"), options)
    wide = pixels / 255 * 2 - 1
    wide = (wide - [0.25, 0.5, 0.125]) / [0.5, 2.0, 4.0]
    assert np.abs(found.array[0].transpose(1, 2, 0) - wide).max() <= np.spacing(np.float32(4))
    said = "; ".join(found.steps)
    assert said.index("-1..1") < said.index("minus mean") < said.index("divided by std")


def test_a_grey_input_takes_the_luma_of_a_colour_photo(png: Path) -> None:
    found = read_image(png, type_of(f"uint8[1, 1, {ROWS}, {COLUMNS}]"))
    np.testing.assert_array_equal(found.array[0, 0], np.asarray(Image.open(png).convert("L")))
    assert any("luma" in step for step in found.steps)


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_other_sizes_are_resized_and_said(png: Path, fit: str) -> None:
    found = read_image(png, type_of("float32[1, 3, 12, 10]"), ImageOptions(fit=fit))
    assert found.array.shape == (1, 3, 12, 10)
    assert any("12 x 10" in step for step in found.steps)
    black = (found.array[0, :, 0] == 0).all()
    assert black == (fit == "pad")


def test_open_sizes_keep_the_photo_as_it_is(png: Path) -> None:
    found = read_image(png, type_of("float32[n, 3, h, w]"))
    assert found.array.shape == (1, 3, ROWS, COLUMNS)


def test_photos_are_turned_upright(tmp_path: Path) -> None:
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3) * 40)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    found = read_image(tmp_path / "turned.png", type_of("uint8[1, 1, h, w]"))
    assert found.array.shape == (1, 1, 3, 2)
    assert any("upright" in step for step in found.steps)


def test_transparent_parts_become_white(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[0, 1] = (200, 100, 50, 255)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png", type_of("uint8[1, 2, 3, 3]"), ImageOptions("NHWC"))
    assert found.array[0, 0, 0].tolist() == [255, 255, 255]
    assert found.array[0, 0, 1].tolist() == [200, 100, 50]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("float32[1, 3, 5, 3]", ImageOptions()),
        ("float32[2, 3, 5, 7]", ImageOptions()),
        ("float32[1, 12, 5, 7]", ImageOptions("NCHW")),
        ("float32[9]", ImageOptions()),
        ("int64[1, 3, 5, 7]", ImageOptions()),
        ("float32[1, 3, 5, 7]", ImageOptions(order="GRAY")),
        ("float32[1, 3, 5, 7]", ImageOptions(order="GBR")),
        ("float32[1, 3, 5, 7]", ImageOptions(fit="magic")),
        ("float32[1, 3, 5, 7]", ImageOptions(mean=(1.0, 2.0))),
        ("float32[1, 3, 5, 7]", ImageOptions(std=(0.0,))),
        ("uint8[1, 3, 5, 7]", ImageOptions(mean=(1.0,))),
    ],
)
def test_what_does_not_fit_is_refused(png: Path, text: str, options: ImageOptions) -> None:
    with pytest.raises(UsageError):
        read_image(png, type_of(text), options)


def test_an_image_that_claims_too_many_pixels_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(stream, "PNG")
    (tmp_path / "bomb.png").write_bytes(stream.getvalue())
    assert len(stream.getvalue()) < 100_000
    with pytest.raises(InputError):
        read_image(tmp_path / "bomb.png", type_of("float32[1, 1, h, w]"))


def test_sixteen_bit_images_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 5), 40_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match="8 bits"):
        read_image(tmp_path / "deep.png", type_of("float32[1, 1, 4, 5]"))


@pytest.mark.parametrize("keep", [0, 8, 40, 80])
def test_truncated_images_are_refused(png: Path, keep: int) -> None:
    png.write_bytes(png.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"photo\.png"):
        read_image(png, type_of("float32[1, 3, 5, 7]"))


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png", "GIF")
    with pytest.raises(InputError):
        read_image(tmp_path / "a.png", type_of("float32[1, 3, 4, 4]"))
