"""The HDF5 reader sees what h5py wrote."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UnsupportedError
from verax.frontends.keras.hdf5 import File

h5py = pytest.importorskip("h5py")


def opened(write: Any) -> File:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        write(file)
    return File(memoryview(stream.getvalue()))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "i1", "<i2", "<u4", "<i8"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3)])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    found = opened(lambda file: file.create_dataset("a/b/c", data=values)).root.child("a/b/c")
    assert found is not None
    array = found.array()
    assert array.dtype == values.dtype and array.shape == values.shape
    np.testing.assert_array_equal(array, values)


def test_groups_of_many_members_need_trees_of_several_levels() -> None:
    def write(file: Any) -> None:
        file.create_group("many")
        for i in range(2000):
            file["many"].create_dataset(f"w{i}", data=np.float32(i))

    many = opened(write).root.child("many")
    assert many is not None and len(many.members) == 2000
    assert all(many.members[f"w{i}"].array() == i for i in range(0, 2000, 37))


def test_attributes_of_every_kind() -> None:
    def write(file: Any) -> None:
        file.attrs["text"] = "grüße" * 30_000
        file.attrs["bytes"] = np.bytes_(b"fixed")
        file.attrs["list"] = np.array([b"one", b"three"])
        file.attrs["words"] = ["a", "long word", ""]
        file.attrs["numbers"] = np.arange(6).reshape(2, 3)
        for i in range(40):
            file.attrs[f"more{i}"] = i

    found = opened(write).root.attributes
    assert found["text"][0].decode() == "grüße" * 30_000
    assert found["bytes"].item() == b"fixed"
    assert found["list"].tolist() == [b"one", b"three"]
    assert found["words"] == [b"a", b"long word", b""]
    np.testing.assert_array_equal(found["numbers"], np.arange(6).reshape(2, 3))
    assert [int(found[f"more{i}"]) for i in range(40)] == list(range(40))


def test_links_are_refused() -> None:
    def soft(file: Any) -> None:
        file["a"] = np.ones(3)
        file["b"] = h5py.SoftLink("/a")

    with pytest.raises(UnsupportedError, match="links"):
        _ = opened(soft).root.members
