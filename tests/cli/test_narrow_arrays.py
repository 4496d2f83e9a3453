"""Types of 8, 4 and 2 bits in files of arrays: NumPy has no word for them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import verax
from verax.base.storage.npz import read_npz, write_npz
from verax.ir.stored import in_type, storable
from verax.ir.types import NARROW, DType

from .conftest import Cli

KINDS = sorted(str(d) for d in NARROW)
VALUES = [[1, 2, 0], [1, 1, 2]]


def array(kind: str) -> np.ndarray:
    values = np.array(VALUES)
    if kind == "float8_e8m0fnu":
        values[values == 0] = 4
    if kind == "int2":
        values -= 2
    return values.astype(getattr(ml_dtypes, kind))


def network(folder: Path, kind: str) -> Path:
    """x in a type -> z, the same, and y, twice that in float32."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind)))
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "f"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info("x", code, [2, 3])]
    outputs = [
        helper.make_tensor_value_info("z", code, [2, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    path = folder / "net.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_run_takes_what_numpy_saved_and_writes_what_numpy_reads(
    cli: Cli, tmp_path: Path, kind: str
) -> None:
    model, given, out = network(tmp_path, kind), array(kind), tmp_path / "out.npz"
    np.save(tmp_path / "x.npy", given)
    found = cli("run", model, "-O0", "--input", tmp_path / "x.npy", "-o", out)
    assert found.code == 0, found.out + found.err
    with np.load(out) as stored:
        assert stored["z"].dtype == storable(given).dtype
        assert stored["z"].tolist() == given.astype(np.float64).tolist()
        assert stored["y"].tolist() == (2 * given.astype(np.float64)).tolist()
    # What it wrote is taken again, and so are numbers in a wider type.
    again = cli("run", model, "-O0", "--input", f"x={out}:z", "-o", tmp_path / "b.npz")
    assert again.code == 0, again.out + again.err
    with np.load(out) as a, np.load(tmp_path / "b.npz") as b:
        assert all(a[n].tobytes() == b[n].tobytes() for n in ("z", "y"))
    verdict = verax.check(model, str(out), {"x": given})
    assert verdict.kind == "identical"


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_narrow_types_are_drawn(cli: Cli, tmp_path: Path, kind: str) -> None:
    found = cli("run", network(tmp_path, kind), "-O0", "-o", tmp_path / "out.npz")
    assert found.code == 0, found.out + found.err
    if not DType(kind).is_float:
        with np.load(tmp_path / "out.npz") as stored:
            assert stored["z"].max() <= DType(kind).ends[1]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int4", np.float32(VALUES)),
        ("int4", 7 * np.int32(VALUES)),
        ("float8_e4m3fn", np.float32(VALUES) + 0.01),
        ("float4_e2m1fn", 100 * np.float64(VALUES)),
        ("uint2", np.zeros((2, 3), "V2")),
    ],
)
def test_numbers_that_a_narrow_type_has_not_are_refused(
    cli: Cli, tmp_path: Path, kind: str, given: np.ndarray
) -> None:
    np.save(tmp_path / "x.npy", given)
    found = cli("run", network(tmp_path, kind), "-O0", "--input", tmp_path / "x.npy")
    assert found.code == 2
    assert f"the model takes {kind}" in found.err and "'x'" in found.err


@pytest.mark.parametrize("kind", [*KINDS, "bfloat16"])
def test_arrays_go_through_files_and_back(tmp_path: Path, kind: str) -> None:
    given, path = array(kind), tmp_path / "a.npz"
    assert in_type(storable(given), DType(kind)).tobytes() == given.tobytes()
    for write in (write_npz, lambda path, arrays: np.savez(path, **arrays)):
        write(path, {"x": given})
        back = in_type(read_npz(path)["x"], DType(kind))
        assert back.dtype == given.dtype and back.tobytes() == given.tobytes()
    write_npz(path, {"x": given})
    with np.load(path) as stored:  # which NumPy cannot of what it writes for float8_e5m2 itself
        assert stored["x"].dtype.kind == "V"
