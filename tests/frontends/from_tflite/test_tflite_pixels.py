"""TFLite's own metadata says how an image is handed over, and a damaged one harms nobody."""

from typing import Any

import numpy as np
import pytest
from tflite_writer import Op, T, model

from verax.frontends.tflite import load_tflite
from verax.ir.pixels import Pixels

flatbuffers = pytest.importorskip("flatbuffers")


def table(b: Any, **fields: tuple[str, Any]) -> int:
    """A table of fields "s0", "s3", ... by slot: (kind of number or "offset", value)."""
    b.StartObject(1 + max(int(k[1:]) for k in fields))
    for slot, (kind, value) in fields.items():
        if kind == "offset":
            b.PrependUOffsetTRelativeSlot(int(slot[1:]), value, 0)
        else:
            getattr(b, f"Prepend{kind}Slot")(int(slot[1:]), value, 0)
    return b.EndObject()


def tables(b: Any, *offsets: int) -> tuple[str, int]:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return "offset", b.EndVector()


def metadata(colour: int = 1, mean: tuple[float, ...] = (), std: tuple[float, ...] = ()) -> bytes:
    """TFLITE_METADATA for one image input: metadata_schema.fbs, written field by field."""
    b = flatbuffers.Builder(256)
    image = table(b, s0=("Int8", colour))
    content = table(b, s0=("Uint8", 2), s1=("offset", image))
    units = []
    if mean or std:
        numbers = [b.CreateNumpyVector(np.array(v, np.float32)) for v in (mean, std)]
        options = table(b, s0=("offset", numbers[0]), s1=("offset", numbers[1]))
        units = [table(b, s0=("Uint8", 1), s1=("offset", options))]
    tensor = table(b, s3=("offset", content), s4=tables(b, *units))
    graph = table(b, s2=tables(b, tensor))
    b.Finish(table(b, s3=tables(b, graph)), file_identifier=b"M001")
    return bytes(b.Output())


def with_metadata(content: bytes, kind: str = "float32") -> bytes:
    tensors = [T((1, 6, 5, 3), kind, name="photo"), T((1, 6, 5, 3), kind, name="y")]
    return model(tensors, [Op("RELU", [0], [1])], [0], [1], entries={"TFLITE_METADATA": content})


def test_normalisation_and_colours_are_read() -> None:
    loaded = load_tflite(with_metadata(metadata(1, (127.5,), (128.0,))))
    said = Pixels("NHWC", "RGB", 0.0, 255.0, (127.5,), (128.0,))
    assert loaded.pixels == {"photo": said}


def test_an_image_without_normalisation_takes_its_pixels() -> None:
    loaded = load_tflite(with_metadata(metadata()))
    assert loaded.pixels == {"photo": Pixels("NHWC", "RGB", 0.0, 255.0)}


def test_three_means_of_gray_and_colours() -> None:
    loaded = load_tflite(with_metadata(metadata(2, (1.0, 2.5, 3.0), (4.0, 5.0, 6.0))))
    found = loaded.pixels["photo"]
    assert (found.order, found.mean, found.std) == ("GRAY", (1.0, 2.5, 3.0), (4.0, 5.0, 6.0))


@pytest.mark.parametrize("keep", range(0, 90, 7))
def test_damaged_metadata_is_said_and_the_network_is_read(keep: int) -> None:
    whole = metadata(1, (127.5,), (128.0,))
    loaded = load_tflite(with_metadata(whole[:keep]))
    assert loaded.inputs.keys() == {"photo"}
    assert loaded.pixels or "cannot be read" in loaded.metadata["TFLITE_METADATA"] or keep > 8
