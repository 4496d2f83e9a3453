"""`verax.substitute`: nodes of any network exchanged for functions of arrays, each one judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind


def network(batch: str = "2") -> Graph:
    """Two convolutions, a Relu beside the second one, a sum, a softmax."""
    rng = np.random.default_rng(4)
    b = Builder("small")
    x = b.input("x", TensorType.parse(f"float32[{batch}, 3, 6, 5]"))
    first = b.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "first")
    second = b.constant(rng.standard_normal((4, 4, 1, 1)).astype(np.float32), "second")
    bias = b.constant(rng.standard_normal(4).astype(np.float32), "bias")
    y = b.add(Conv(strides=(2, 1), pads=((1, 0), (0, 1))), [x, first, bias], ["y"], "front")
    z = b.add(Conv(), [b.add(Relu(), [y], ["r"], "curve"), second], ["z"], "back")
    total = b.add(Add(), [z, y], ["total"], "sum")
    return b.graph([b.add(Softmax(axis=1), [total], ["p"], "end"), z])


def drawn(batch: int = 2) -> np.ndarray:
    return np.random.default_rng(6).standard_normal((batch, 3, 6, 5)).astype(np.float32)


def looped(x: Any, w: Any, bias: Any = None, *, strides: Any = (), pads: Any = ()) -> Any:
    """A convolution as everybody writes it."""
    (top, bottom), (left, right) = pads or ((0, 0), (0, 0))
    down, across = strides or (1, 1)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows, columns = (x.shape[2] - w.shape[2]) // down + 1, (x.shape[3] - w.shape[3]) // across + 1
    y = np.zeros((x.shape[0], w.shape[0], rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            at = (
                slice(i * down, i * down + w.shape[2]),
                slice(j * across, j * across + w.shape[3]),
            )
            y[:, :, i, j] = np.einsum("nchw,ochw->no", x[:, :, at[0], at[1]], w)
    return y if bias is None else y + bias[:, None, None]


def test_functions_take_the_place_of_nodes_and_are_judged() -> None:
    graph, x = network(), drawn()
    net = verax.substitute(graph, {"Conv": looped, "e?d": lambda a, axis: softmax(a, axis)})
    assert list(net.nodes) == ["front", "back", "end"] and "not run yet" in str(net)
    p, z = net(x)
    wanted = verax.reference(graph, {"x": x})
    np.testing.assert_allclose(p, wanted["p"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z, wanted["z"], rtol=1e-4, atol=1e-4)
    assert {v.kind for v in net.verdicts.values()} <= {Kind.rounding, Kind.identical}
    assert net.verdict is not None and net.verdict.kind is Kind.rounding
    assert "the network's outputs: rounding" in str(net)


def softmax(a: Any, axis: int) -> Any:
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_a_mistake_is_named_where_it_is_made_and_not_elsewhere() -> None:
    def crooked(x: Any, w: Any, bias: Any = None, *, strides: Any, pads: Any) -> Any:
        return looped(x, w * np.float32(1.001), bias, strides=strides, pads=pads)

    graph = network()
    net = verax.substitute(graph, {lambda n: n.name == "front": crooked, Conv: looped})
    net.run({"x": drawn()})
    assert net.verdicts["front"].kind is Kind.mistake
    assert net.verdicts["back"].kind in (Kind.rounding, Kind.identical)
    assert net.verdict is not None and net.verdict.kind is Kind.mistake


def test_what_is_not_exchanged_has_the_promised_bits_whatever_the_batch() -> None:
    net = verax.substitute(network("n"), {"Relu": lambda x: np.maximum(x, 0)})
    for batch in (1, 3):
        x = drawn(batch)
        exact = verax.compile(network("n"), opt_level=1).run({"x": x})
        for name, array in net.run({"x": x}).items():
            assert array.tobytes() == exact[name].tobytes()


@pytest.mark.parametrize(
    ("replacements", "said"),
    [
        ({"Cnov": looped}, "no node fits 'Cnov'"),
        ({"Conv": 3}, "a int cannot stand"),
        ({3: looped}, "cannot be chosen by a int"),
        ({"Relu": lambda x: x[:1]}, "it gave the shape"),
        ({"Relu": lambda x: (x, x)}, "it gave 2 arrays"),
        ({"Relu": lambda x: 1 // 0}, "ZeroDivisionError"),
    ],
)
def test_what_makes_no_sense_is_refused(replacements: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        verax.substitute(network(), replacements)(drawn())


def test_the_number_of_inputs_is_checked() -> None:
    with pytest.raises(UsageError, match="the network takes 1"):
        verax.substitute(network(), {"Relu": np.abs})(drawn(), drawn())
