"""Large weights of an ONNX file are read once to where they stay: the network is the one that its
bytes give, and what is wrong with a file is said as it is of bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verax.base.errors import ModelError, VeraxError
from verax.base.storage import reading
from verax.base.storage.reading import LARGE, recording
from verax.frontends.onnx.importer import load_onnx
from verax.frontends.onnx.stored_tensors import file_content

SIZES = {"large": (LARGE // 4 + 3, 2), "small": (7, 2), "larger": (3, LARGE // 4 + 11)}


def model(**types: str) -> onnx.ModelProto:
    """Constants of several sizes, some before and some behind small ones, each an output's."""
    rng = np.random.default_rng(4711)
    tensors = [
        numpy_helper.from_array(
            (8 * rng.standard_normal(shape)).astype(types.get(name, "float32")), name
        )
        for name, shape in SIZES.items()
    ]
    nodes = [helper.make_node("Neg", [name], [f"{name} turned"]) for name in SIZES]
    outputs = [
        helper.make_tensor_value_info(f"{n} turned", t.data_type, None)
        for n, t in zip(SIZES, tensors, strict=True)
    ]
    graph = helper.make_graph(nodes, "stored", [], outputs, tensors, doc_string="text behind it")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, as protobuf's encoding has it."""
    written, length = bytes([number << 3 | 2]), len(content)
    while length >= 0x80:
        written += bytes([length & 0x7F | 0x80])
        length >>= 7
    return written + bytes([length]) + content


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
def test_a_file_gives_the_constants_of_its_bytes(dtype: str, tmp_path: Path) -> None:
    content = model(large=dtype, larger=dtype).SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    message, apart = file_content(path)
    assert sorted(apart) == [0, 2] and len(message) < LARGE
    read, expected = load_onnx(path).graph.constants, load_onnx(content).graph.constants
    assert read.keys() == expected.keys() >= SIZES.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype and not read[name].flags.writeable
    assert read["large"].ctypes.data % 4096 == 0, "in pages of its own"


def test_what_was_read_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model().SerializeToString())
    with recording() as files:
        load_onnx(path)
    assert files == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_damaged_file_is_what_its_bytes_are(tmp_path: Path) -> None:
    """Wherever it is cut off or changed: the same network, or the same error."""
    content, path = model().SerializeToString(), tmp_path / "net.onnx"
    rng = np.random.default_rng(4712)
    places = [
        *range(40),
        *rng.integers(len(content), size=60),
        *range(len(content) - 60, len(content)),
    ]
    for place in map(int, places):
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        for variant in (content[:place], bytes(damaged)):
            if not variant:
                continue
            path.write_bytes(variant)
            answers = []
            for source in (path, variant):
                try:
                    constants = load_onnx(source).graph.constants
                    answers.append({n: a.tobytes() for n, a in constants.items()})
                except VeraxError as error:
                    answers.append(error.cause)
            assert answers[0] == answers[1], place


def test_fields_that_are_there_twice_are_left_to_protobuf(tmp_path: Path) -> None:
    """It joins two graphs, and takes the last of two raw data."""
    path = tmp_path / "net.onnx"
    written = model()
    two_graphs = field(7, helper.make_graph([], "", [], []).SerializeToString())
    tensor = written.graph.initializer[0]
    twice = tensor.SerializeToString() + field(9, b"\0" * len(tensor.raw_data))
    del written.graph.initializer[0]
    graph = written.graph.SerializeToString() + field(5, twice)
    written.ClearField("graph")
    for content in (
        model().SerializeToString() + two_graphs,
        written.SerializeToString() + field(7, graph),
    ):
        path.write_bytes(content)
        assert file_content(path) == (content, {})
    assert not load_onnx(path).graph.constants["large"].any()


def test_a_claim_of_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    content = model().SerializeToString()
    at = content.index(b"\x4a")  # raw data of the first initializer
    claimed = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
    path.write_bytes(content[: at + 1] + claimed + content[at + 1 :])
    with pytest.raises(ModelError):
        load_onnx(path)


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "net.onnx", reading.os.readv
    path.write_bytes(model().SerializeToString())

    def slow(descriptor: int, buffers: list[memoryview]) -> int:
        with path.open("r+b") as stream:
            stream.write(b"other")
        reading.os.utime(path, ns=(1, 1))
        return real(descriptor, buffers)

    monkeypatch.setattr(reading.os, "readv", slow)
    with pytest.raises(ModelError, match="changed while it was read"):
        load_onnx(path)


def test_elements_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path, written = tmp_path / "net.onnx", model()
    written.graph.initializer[2].dims[0] += 1
    assert written.graph.initializer[2].data_type == TensorProto.FLOAT
    path.write_bytes(written.SerializeToString())
    with pytest.raises(ModelError, match="bytes are stored for float32"):
        load_onnx(path)
