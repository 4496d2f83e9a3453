"""A changed bit needs a new version of the promised arithmetic: recipes name it.

`arithmetic.json` holds, per operator, a digest of its cases and one of the bits that they promise;
and for the other types of floats one of what the float32 cases promise when converted to each.
After a change of the cases alone, or of `ARITHMETIC`, run this file as a script: it stores them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import verax.ops
from verax.base.errors import VeraxError
from verax.ir.graph import Node, infer_node
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import DType, TensorType
from verax.numerics.formats import numpy_dtype
from verax.numerics.version import ARITHMETIC
from verax.reference.evaluate import evaluate_node

assert verax.ops
STORED = Path(__file__).with_name("arithmetic.json")
KINDS = ("float16", "bfloat16", "float64")
OPERATORS = sorted(name for name, op in REGISTRY.items() if not op.unsupported)


def digest(arrays: Iterable[np.ndarray | None]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        if array is None:
            continue
        found.update(f"{array.dtype.name}{array.shape}".encode())
        # NaN's sign and payload are not promised.
        is_float = array.dtype.kind != "V" or DType.of(array).is_float
        nan = array.dtype.type(np.nan) if is_float and array.dtype.kind in "fV" else None
        bits = array if nan is None else np.where(np.isnan(array), nan, array)
        found.update(np.ascontiguousarray(bits).tobytes())
    return found.hexdigest()[:16]


def in_type(case: Case, kind: str) -> Case | None:
    """A case with numbers of another type in the place of float32; None where that has none."""
    if not any(a is not None and a.dtype == np.float32 for a in case.inputs):
        return None
    with np.errstate(over="ignore"):
        arrays = [
            a if a is None or a.dtype != np.float32 else a.astype(numpy_dtype(kind))
            for a in case.inputs
        ]
    return dataclasses.replace(case, inputs=tuple(arrays))


def bits_in(name: str, kind: str) -> str:
    """Digest of what the float32 cases of an operator promise in another type; "" for none."""
    made: list[np.ndarray | None] = []
    for case in REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))):
        other = in_type(case, kind)
        with contextlib.suppress(VeraxError):
            made += promised(other) if other else []
    return digest(made) if made else ""


def bits_of(name: str) -> tuple[str, str]:
    """Digests of the cases of an operator, and of what is promised for them."""
    given: list[np.ndarray | None] = []
    made: list[np.ndarray | None] = []
    told = hashlib.sha256()
    for case in REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))):
        told.update(str(case.op).encode())
        given += case.inputs
        made += promised(case)
    return told.hexdigest()[:8] + digest(given), digest(made)


def promised(case: Case) -> tuple[np.ndarray, ...]:
    """What the operator of a case promises for its inputs."""
    inputs = tuple(None if a is None else f"x{i}" for i, a in enumerate(case.inputs))
    node = Node(case.op, inputs, tuple(f"y{i}" for i in range(case.op.output_count)))
    types = {f"x{i}": TensorType.of(a) for i, a in enumerate(case.inputs) if a is not None}
    known = {f"x{i}": a for i, a in enumerate(case.inputs) if a is not None}
    outputs, _ = infer_node(node, types, known)
    return evaluate_node(
        node,
        list(case.inputs),
        tuple(None if a is None else TensorType.of(a) for a in case.inputs),
        tuple(outputs),
        np.float32,
        promised_bits=True,
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_no_promised_bit_changed(name: str) -> None:
    stored = json.loads(STORED.read_text())
    assert stored["version"] == ARITHMETIC, "store the bits of the new version (see the docstring)"
    assert name in stored["bits"], "store the bits of the new operator (see the docstring)"
    cases, bits = bits_of(name)
    if cases != stored["bits"][name][0]:
        pytest.fail("its cases changed: store them again (see the docstring)")
    assert bits == stored["bits"][name][1], (
        f"{name} promises other bits than ARITHMETIC = {ARITHMETIC} did: raise it, so that recipes "
        "of before are refused and not followed to other numbers"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_no_promised_bit_of_other_floats_changed(name: str, kind: str) -> None:
    stored = json.loads(STORED.read_text())[kind]
    assert bits_in(name, kind) == stored.get(name, ""), (
        f"{name} promises other bits of {kind} than ARITHMETIC = {ARITHMETIC} did: raise it"
    )


if __name__ == "__main__":
    found = {name: list(bits_of(name)) for name in OPERATORS}
    record: dict[str, object] = {"version": ARITHMETIC, "bits": found}
    for kind in KINDS:
        others = {name: bits_in(name, kind) for name in OPERATORS}
        record[kind] = {name: bits for name, bits in others.items() if bits}
    STORED.write_text(json.dumps(record, indent=1) + "\n")
