"""The HDF5 reader sees what h5py wrote."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.keras.hdf5 import File

h5py = pytest.importorskip("h5py")


LIBVERS = ["earliest", "latest", ("earliest", "v108"), ("v108", "v110")]
"""Layouts that h5py writes: classic ones, newer ones, and mixtures."""


def opened(write: Any, libver: Any = "earliest") -> File:
    stream = io.BytesIO()
    with h5py.File(stream, "w", libver=libver) as file:
        write(file)
    return File(memoryview(stream.getvalue()))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "i1", "<i2", "<u4", "<i8"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_arrays(dtype: str, shape: tuple[int, ...], libver: Any) -> None:
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    found = opened(lambda file: file.create_dataset("a/b/c", data=values), libver).root.child(
        "a/b/c"
    )
    assert found is not None
    array = found.array()
    assert array.dtype == values.dtype and array.shape == values.shape
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_groups_of_many_members_need_trees_of_several_levels(libver: Any) -> None:
    def write(file: Any) -> None:
        file.create_group("many")
        for i in range(700):
            file["many"].create_dataset(f"w{i}", data=np.float32(i))

    many = opened(write, libver).root.child("many")
    assert many is not None and len(many.members) == 700
    assert all(many.members[f"w{i}"].array() == i for i in range(0, 700, 37))


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_attributes_of_every_kind(libver: Any) -> None:
    def write(file: Any) -> None:
        file.attrs["text"] = "grüße" * 30_000
        file.attrs["bytes"] = np.bytes_(b"fixed")
        file.attrs["list"] = np.array([b"one", b"three"])
        file.attrs["words"] = ["a", "long word", ""]
        file.attrs["numbers"] = np.arange(6).reshape(2, 3)
        for i in range(40):
            file.attrs[f"more{i}"] = i

    found = opened(write, libver).root.attributes
    assert found["text"][0].decode() == "grüße" * 30_000
    assert found["bytes"].item() == b"fixed"
    assert found["list"].tolist() == [b"one", b"three"]
    assert found["words"] == [b"a", b"long word", b""]
    np.testing.assert_array_equal(found["numbers"], np.arange(6).reshape(2, 3))
    assert [int(found[f"more{i}"]) for i in range(40)] == list(range(40))


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_links_are_refused(libver: Any) -> None:
    def soft(file: Any) -> None:
        file["a"] = np.ones(3)
        file["b"] = h5py.SoftLink("/a")

    with pytest.raises(UnsupportedError, match="links"):
        _ = opened(soft, libver).root.members


@pytest.mark.parametrize("size", [7000, 30_000])
def test_large_attributes(size: int) -> None:
    """Those of less than 64 KiB share blocks of blocks, larger ones lie alone."""
    values = np.arange(float(size))

    def write(file: Any) -> None:
        for i in range(40):
            file.attrs[f"a{i}"] = values + i

    found = opened(write, "latest").root.attributes
    assert all(np.array_equal(found[f"a{i}"], values + i) for i in range(40))


@st.composite
def pieces(draw: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """An array, and how h5py is to cut and pack it."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    dtype = draw(st.sampled_from(["<f4", ">f4", "<f2", "<f8", "<i4", "|u1"]))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 99, shape).astype(dtype)
    options: dict[str, Any] = {"chunks": chunks, "shuffle": draw(st.booleans())}
    if draw(st.booleans()):
        options |= {"compression": "gzip", "compression_opts": draw(st.integers(0, 9))}
    return values, options


@given(case=pieces(), libver=st.sampled_from(LIBVERS))
@settings(max_examples=60, deadline=None)
def test_arrays_in_pieces(case: Any, libver: Any) -> None:
    values, options = case
    file = opened(lambda file: file.create_dataset("w", data=values, **options), libver)
    found = file.root.members["w"].array()
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
@pytest.mark.parametrize("packed", [{}, {"compression": "gzip", "shuffle": True}], ids=str)
def test_thousands_of_pieces(libver: Any, packed: dict[str, Any]) -> None:
    """Fixed arrays have pages of 1,024 entries, trees several levels."""
    values = np.random.default_rng(0).standard_normal((67, 70)).astype(np.float32)
    options = {"chunks": (2, 1), **packed}
    file = opened(lambda file: file.create_dataset("w", data=values, **options), libver)
    np.testing.assert_array_equal(file.root.members["w"].array(), values)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"compression": "lzf"}, "lzf"),
        ({"fletcher32": True}, "fletcher32"),
        ({"scaleoffset": 3}, "scaleoffset"),
        ({"maxshape": (None, 7), "chunks": (2, 3)}, "extensible array"),
        ({"maxshape": (None, None), "chunks": (2, 3)}, "tree of version 2"),
    ],
)
def test_what_is_not_unpacked_is_named(options: dict[str, Any], match: str) -> None:
    values = np.ones((5, 7), np.float32)
    file = opened(lambda file: file.create_dataset("w", data=values, **options), "latest")
    with pytest.raises(UnsupportedError, match=match):
        file.root.members["w"].array()


def test_other_floats_are_named() -> None:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)

    def write(file: Any) -> None:
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"w", kind, space)

    with pytest.raises(UnsupportedError, match="bfloat16"):
        opened(write).root.members["w"].array()


def test_packed_bombs_are_refused_before_memory_is_taken() -> None:
    def write(file: Any) -> None:
        zeros = np.zeros((1 << 9, 1 << 12), np.float32)
        file.create_dataset("w", data=zeros, chunks=(1 << 9, 1 << 12), compression="gzip")

    with pytest.raises(ModelError, match="damaged"):
        opened(write).root.members["w"].array()


def test_pieces_never_written_are_refused() -> None:
    def write(file: Any) -> None:
        file.create_dataset("w", (4, 6), np.float32, chunks=(2, 3))[:2] = 1

    for libver in LIBVERS:
        with pytest.raises(UnsupportedError, match="never written"):
            opened(write, libver).root.members["w"].array()
