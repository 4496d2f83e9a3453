"""Constants of the same bytes become one, and no others."""

from __future__ import annotations

import numpy as np
from tests.compiler.salted import same_promised_bits

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.passes.share_constants import share_constants
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType


def added(*constants: np.ndarray, shown: bool = False) -> Graph:
    """x + c0 + c1 + ...; shown: the constants are outputs as well."""
    b = Builder("net")
    value = b.input("x", TensorType.parse("float32[2, 3]"))
    names = [b.constant(c, f"w{i}") for i, c in enumerate(constants)]
    for name in names:
        last = b.add(REGISTRY["Cast"](to="float32"), [name])
        value = b.add(REGISTRY["Add"](), [value, last])
    return b.graph([value, *(names if shown else [])])


def left(graph: Graph) -> list[str]:
    after = remove_dead_code(share_constants(graph)[0])[0]
    checker.check(after)
    x = np.array([[1, -0.0, 3], [np.nan, 5, -np.inf]], np.float32)
    assert same_promised_bits(graph, after, {"x": x})
    return list(after.constants)


ROW = np.array([1, 2, 3], np.float32)


def test_equal_constants_become_one() -> None:
    graph = added(ROW, ROW.copy(), ROW + 1, ROW.copy())
    assert left(graph) == ["w0", "w2"]
    assert share_constants(graph)[1].notes == (
        "share_constants: 'w1' is 'w0'",
        "share_constants: 'w3' is 'w0'",
    )
    assert share_constants(graph, 1)[1].rewrites == 1


def test_another_type_shape_sign_or_payload_is_another_constant() -> None:
    nan = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    zeros = np.zeros(3, np.float32)
    others = (ROW, ROW[None], ROW.view(np.int32), zeros, -zeros, nan[:1], nan[1:])
    assert len(left(added(*others))) == len(others)


def test_constants_that_collide_in_their_checksum_are_compared() -> None:
    module = share_constants.__globals__
    plain = module["_checksum"]
    module["_checksum"] = lambda array: 0
    try:
        assert left(added(ROW, ROW + 1, ROW.copy(), ROW + 1)) == ["w0", "w1"]
    finally:
        module["_checksum"] = plain


def test_constants_that_are_outputs_keep_their_names() -> None:
    graph = added(ROW, ROW.copy(), shown=True)
    assert left(graph) == ["w0", "w1"]


def test_scalars_and_empty_constants_are_shared() -> None:
    one, empty = np.array(1, np.float32), np.zeros((0, 1, 3), np.float32)
    assert left(added(one, one.copy())) == ["w0"]
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 1, 3]"))
    names = [b.constant(empty, f"e{i}") for i in range(2)]
    graph = b.graph([b.add(REGISTRY["Concat"](axis=0), [x, *names])])
    assert list(remove_dead_code(share_constants(graph)[0])[0].constants) == ["e0"]


def test_tied_weights_are_stored_once() -> None:
    rng = np.random.default_rng(77)

    def weight_bytes(*weights: np.ndarray) -> int:
        b = Builder("dense")
        x = b.input("x", TensorType.parse("float32[2, 33]"))
        for w in weights:
            x = b.add(REGISTRY["MatMul"](), [x, b.constant(w)])
        return compile_graph(b.graph([x]), Settings(threads=1)).plan.weight_bytes

    w, other = rng.standard_normal((2, 33, 33)).astype(np.float32)
    assert weight_bytes(w, w.copy(), w.copy()) == weight_bytes(w) < weight_bytes(w, other)
