"""External data: mapped lazily, only from the model's own folder, sizes checked."""

import os

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import model

from verax.base.errors import ModelError
from verax.export.onnx import write_onnx
from verax.frontends.onnx import load_onnx

W = np.arange(15, dtype=np.float32).reshape(3, 5) - 7


def written(folder, location="w.bin", data=None, **entries):
    """A model x @ w in `folder`, w stored at `location`."""
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3]}, {"y": [2, 5]}, {"w": W}
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    if data is not None:
        (folder / "w.bin").write_bytes(data)
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def refusal(path):
    with pytest.raises(ModelError) as error:
        load_onnx(path)
    return str(error.value)


@pytest.mark.parametrize("offset", [0, 4096, 3])
def test_data_beside_the_model_is_read_at_its_offset(tmp_path, offset):
    path = written(tmp_path, data=b"\7" * offset + W.tobytes() + b"tail", offset=offset)
    found = load_onnx(path).graph.constants["w"]
    assert np.array_equal(found, W) and found.flags.aligned and not found.flags.writeable


def test_data_in_a_folder_below_is_read(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w").write_bytes(W.tobytes())
    path = written(tmp_path, "data/w", length=W.nbytes)
    assert np.array_equal(load_onnx(path).graph.constants["w"], W)


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "a/../../w.bin", "/etc/hostname", "", "..", ".", "w\0.bin", "..\\w.bin"],
)
def test_places_outside_of_the_folder_are_refused(tmp_path, location):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    path = written(inside, location)
    assert "initializer 'w'" in refusal(path)


def test_a_link_that_leaves_the_folder_is_refused(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (inside / "w.bin").symlink_to(tmp_path / "secret")
    assert "outside of the model's folder" in refusal(written(inside))
    (inside / "up").symlink_to(tmp_path)
    assert "outside of the model's folder" in refusal(written(inside, "up/secret"))


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    assert "not a regular file" in refusal(written(tmp_path))
    assert "cannot read" in refusal(written(tmp_path, "missing.bin"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "end at byte 64 of a file of 60"),
        ({"offset": -4}, "bytes are stored"),
        ({"offset": 1 << 62}, "of a file of 60"),
        ({"length": 56}, "56 bytes are stored for float32[3, 5]"),
        ({"length": 1 << 62}, "bytes are stored"),
        ({"offset": "ten"}, "not a number"),
    ],
)
def test_offsets_and_lengths_are_validated(tmp_path, entries, message):
    assert message in refusal(written(tmp_path, data=W.tobytes(), **entries))


def test_a_truncated_or_empty_data_file_is_refused(tmp_path):
    assert "truncated" in refusal(written(tmp_path, data=W.tobytes()[:-1]))
    assert "truncated" in refusal(written(tmp_path, data=b""))


def test_bytes_have_no_folder_and_so_no_external_data(tmp_path):
    path = written(tmp_path, data=W.tobytes())
    with pytest.raises(ModelError, match="by its path"):
        load_onnx(path.read_bytes())


def test_large_weights_are_written_beside_the_model_and_read_back(tmp_path):
    rng = np.random.default_rng(3)
    big = rng.standard_normal((32, 17), dtype=np.float32)
    proto = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Reshape", ["a", "s"], ["y"]),
        ],
        {"x": [2, 32]},
        {"y": [17, 2]},
        {"w": big, "s": np.array([17, 2])},
    )
    graph = load_onnx(proto).graph
    files = write_onnx(graph, tmp_path / "big.onnx", inline_limit=1000)
    assert [f.name for f in files] == ["big.onnx", "big.onnx.data"]
    assert files[0].stat().st_size < 1000 and files[1].stat().st_size == big.nbytes
    assert load_onnx(files[0]).graph == graph
