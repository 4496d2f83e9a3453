"""A call is short, and what it hands to native code is what was given, whatever kind of array."""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verax.base.arrays import address_writer
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

MOST_CALLS = 14
"""Functions of Python that a run of a program without a slow road enters."""


def difference(dims: str) -> Executable:
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float32[{dims}]"))
    y = b.input("y", TensorType.parse(f"float32[{dims}]"))
    b.add(REGISTRY["Sub"](), [x, y], ["z"])
    return compile(b.graph(["z"]), Settings(threads=1))


def pair(shape: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {v: random.standard_normal(shape).astype(np.float32) for v in "xy"}


@pytest.mark.parametrize("dims", ["4, 7", "n, 7"])
def test_a_call_enters_few_functions(dims: str) -> None:
    exe, fed, entered = difference(dims), pair((4, 7), 7101), []
    exe.run(fed)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        exe.run(fed)
    finally:
        sys.setprofile(None)
    assert len(entered) <= MOST_CALLS, entered


def test_arrays_of_every_kind_are_read_as_what_they_hold() -> None:
    exe, fed = difference("4, 7"), pair((4, 7), 7102)
    wanted = (fed["x"] - fed["y"]).tobytes()
    backwards = {v: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1] for v, a in fed.items()}
    columns = {v: np.asfortranarray(a) for v, a in fed.items()}
    fixed = {v: a.copy() for v, a in fed.items()}
    for array in fixed.values():
        array.flags.writeable = False
    own = {v: a.view(np.recarray) for v, a in fed.items()}
    for given in (fed, backwards, columns, fixed, own, dict(reversed(fed.items())), fed):
        assert exe.run(given)["z"].tobytes() == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": np.zeros((4, 7))},
        {"x": np.zeros((4, 7), ">f4")},
        {"x": np.zeros((7, 4), np.float32)},
        {"x": np.zeros(28, np.float32)},
        {"w": np.zeros((4, 7), np.float32)},
    ],
    ids=["float64", "swapped bytes", "turned", "flat", "unknown"],
)
def test_what_does_not_fit_is_refused_after_a_run_that_did(wrong: dict[str, np.ndarray]) -> None:
    exe, fed = difference("4, 7"), pair((4, 7), 7103)
    exe.run(fed)
    with pytest.raises(InputError):
        exe.run({**fed, **wrong})
    with pytest.raises(InputError, match="missing"):
        exe.run({"x": fed["x"]})


def test_sizes_that_change_change_the_program() -> None:
    exe = difference("n, 7")
    for rows in (4, 5, 4, 1):
        fed = pair((rows, 7), 7104 + rows)
        np.testing.assert_array_equal(exe.run(fed)["z"], fed["x"] - fed["y"])


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16, "int64", "uint8", "bool"]
)
def test_addresses_are_those_that_numpy_tells(dtype: Any) -> None:
    array = np.zeros((3, 5), dtype)
    fixed = array.copy()
    fixed.flags.writeable = False
    found = [array, array[1:], array[:0], array[2, 3:], np.zeros((), dtype), fixed]
    table = (ctypes.c_void_p * 8)()
    address_writer(table, range(2, 2 + len(found)))(found)
    wanted = [a.__array_interface__["data"][0] for a in found]
    assert list(table) == [None, None, *wanted]


def test_what_is_no_plain_array_is_read_as_before() -> None:
    exe, fed = difference("4, 7"), pair((4, 7), 7105)
    wanted = exe.run(fed)["z"].tobytes()
    assert exe.run({v: memoryview(a) for v, a in fed.items()})["z"].tobytes() == wanted
