"""What a file says of its image is the default for photos and for drawn images, and is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

import verax
from verax.frontends.coreml.messages import model_messages
from verax.frontends.model import Model
from verax.images import ImageOptions, read_image
from verax.ir.pixels import Pixels, stated_pixels
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs

from .conftest import Cli

ROWS, COLUMNS = 6, 5


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(61).integers(0, 256, (ROWS, COLUMNS, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    return tmp_path / "cat.png"


def colours(photo: Path) -> np.ndarray:
    """The photo's pixels [rows, columns, red green blue]."""
    return np.asarray(Image.open(photo)).astype(np.float64)


def coreml(path: Path, color: int = 30) -> Path:
    """A network that doubles a colour image; color 20 is RGB, 30 is BGR."""
    model = model_messages().Model()
    model.specificationVersion = 1
    feature = model.description.input.add()
    feature.name = "image"
    feature.type.imageType.width, feature.type.imageType.height = COLUMNS, ROWS
    feature.type.imageType.colorSpace = color
    result = model.description.output.add()
    result.name = "y"
    result.type.multiArrayType.shape.extend((3, ROWS, COLUMNS))
    layer = model.neuralNetwork.layers.add()
    layer.name = "double"
    layer.input.append("image")
    layer.output.append("y")
    layer.activation.linear.alpha = 2.0
    path.write_bytes(model.SerializeToString())
    return path


def onnx_file(path: Path, shape: tuple[int, ...], **props: str) -> Path:
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {k.replace("__", "."): v for k, v in props.items()})
    onnx.save(model, path)
    return path


def output(path: Path) -> np.ndarray:
    (array,) = np.load(path).values()
    return np.squeeze(array)


def test_pixels_of_a_coreml_image_are_handed_over_as_the_file_declares(
    cli: Cli,
    tmp_path: Path,
    photo: Path,
) -> None:
    for color, order in ((20, slice(None)), (30, slice(None, None, -1))):
        model = coreml(tmp_path / "net.mlmodel", color)
        result = cli("run", model, "--image", photo, "-o", tmp_path / "y.npz")
        assert result.code == 0
        assert "as the file says" in result.out
        assert "0..255" in result.out
        assert "assumed" not in result.out
        want = 2 * colours(photo)[:, :, order].transpose(2, 0, 1)
        np.testing.assert_array_equal(output(tmp_path / "y.npz"), want)


def test_what_is_asked_for_wins_and_the_contradiction_is_said(
    cli: Cli,
    tmp_path: Path,
    photo: Path,
) -> None:
    model = coreml(tmp_path / "net.mlmodel")
    options = ("--image-range", "0,1", "--image-order", "rgb")
    result = cli("run", model, "--image", photo, *options, "-o", tmp_path / "y.npz")
    want = 2 * (colours(photo) / 255).transpose(2, 0, 1)
    np.testing.assert_allclose(output(tmp_path / "y.npz"), want, rtol=1e-6)
    assert "CONTRADICTION: order RGB was asked for, the file says BGR" in result.out
    assert "numbers 0..1 were asked for, the file says 0..255" in result.out


def test_a_converted_file_still_says_it(cli: Cli, tmp_path: Path, photo: Path) -> None:
    verax.convert(coreml(tmp_path / "net.mlmodel"), tmp_path / "net.onnx", verify=False)
    assert cli("run", tmp_path / "net.onnx", "--image", photo, "-o", tmp_path / "y.npz").code == 0
    want = 2 * colours(photo)[:, :, ::-1].transpose(2, 0, 1)
    np.testing.assert_array_equal(output(tmp_path / "y.npz"), want)


@pytest.mark.parametrize(
    ("shape", "props", "want"),
    [
        (
            (1, 3, ROWS, COLUMNS),
            {"Image__BitmapPixelFormat": "Bgr8", "Image__NominalPixelRange": "Normalized_1_1"},
            lambda c: (c / 127.5 - 1)[:, :, ::-1].transpose(2, 0, 1),
        ),
        (
            (1, 3, ROWS, COLUMNS),
            {"Image__NominalPixelRange": "NominalRange_0_255"},
            lambda c: c.transpose(2, 0, 1),
        ),
        ((1, ROWS, COLUMNS, 3), {"range": "0..255", "layout": "NHWC"}, lambda c: c),
        ((1, ROWS, COLUMNS, 3), {"range": "-1, 1"}, lambda c: c / 127.5 - 1),
        ((1, ROWS, COLUMNS, 3), {}, lambda c: c / 255),
    ],
)
def test_onnx_files_say_it_in_their_own_words(
    tmp_path: Path, photo: Path, shape: tuple[int, ...], props: dict[str, str], want: Any
) -> None:
    model = verax.load(onnx_file(tmp_path / "net.onnx", shape, **props))
    assert isinstance(model, Model)
    found = read_image(photo, model.inputs["x"], None, model.pixels.get("x"))
    np.testing.assert_allclose(found.array[0], want(colours(photo)), rtol=1e-6, atol=1e-6)
    said = [step for step in found.steps if step.startswith("as the file says")]
    assert len(said) == bool(props)
    assumed = [step for step in found.steps if step.startswith("assumed")]
    assert ("range" in " ".join(assumed)) is not any("ange" in key for key in props)


def test_drawn_images_lie_in_the_range_of_the_file(tmp_path: Path) -> None:
    path = coreml(tmp_path / "net.mlmodel")
    model = verax.load(path)
    assert isinstance(model, Model)
    arrays, words = draw_inputs(model.graph, 3, pixels=model.pixels)
    assert arrays["image"].min() >= 0
    assert 200 < arrays["image"].max() <= 255
    assert "as the file says: pixels 0..255, BGR" in words["image"]
    (drawn,) = verax.check(model, "verax:O1").inputs
    assert "pixels 0..255" in drawn.origin


def test_a_drawn_image_in_nhwc_is_smooth_along_its_rows_and_columns(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "n.onnx", (2, 40, 36, 3), layout="NHWC", range="-3..5")
    model = verax.load(path)
    assert isinstance(model, Model)
    (x,) = draw_inputs(model.graph, 3, pixels=model.pixels)[0].values()
    assert x.shape == (2, 40, 36, 3)
    assert -3 <= x.min() < -2
    assert 4 < x.max() <= 5
    steps = [np.abs(np.diff(x, axis=a)).mean() for a in (1, 2)]
    assert max(steps) < np.abs(x - x.mean()).mean()


@pytest.mark.parametrize(
    "pixels",
    [
        Pixels("NHWC", "BGR", 0.0, 255.0, (127.5,), (128.0,)),
        Pixels(None, None, -1.0, 1.0),
        Pixels("CHW", "GRAY", 0.0, 1.0, (0.1, 0.25, 0.5), (1.0, 2.0, 3.0)),
    ],
)
def test_a_line_of_metadata_reads_as_it_was_written(pixels: Pixels) -> None:
    assert Pixels.from_text(pixels.to_text()) == pixels


@pytest.mark.parametrize(
    "text", ["", "0.5 unless it is given", "pixels", "pixels 5..1", "pixels a..b", "pixels nan..1"]
)
def test_other_lines_say_nothing_of_the_range(text: str) -> None:
    found = Pixels.from_text(text)
    assert found is None or not found.is_normalized


def test_model_wide_words_are_for_the_only_image() -> None:
    image, vector = (TensorType.parse(t) for t in ("float32[1, 3, 8, 8]", "float32[5]"))
    props = {"range": "0..255"}
    said = {"a": Pixels(low=0.0, high=255.0)}
    assert stated_pixels(props, {"a": image, "v": vector}) == said
    assert stated_pixels(props, {"a": image, "b": image}) == {}
    assert stated_pixels({"range": "wide"}, {"a": image}) == {}


def test_bytes_need_no_range_and_none_is_assumed(photo: Path) -> None:
    type_ = TensorType.parse(f"uint8[1, {ROWS}, {COLUMNS}, 3]")
    said = Pixels("NHWC", "RGB", 0.0, 255.0, (127.5,), (127.5,))
    found = read_image(photo, type_, ImageOptions(), said)
    np.testing.assert_array_equal(found.array[0], colours(photo))
    assert not any("assumed" in step for step in found.steps)
