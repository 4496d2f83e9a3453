"""Random small networks for property tests: every graph is valid by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import verax.ops  # noqa: F401  (registers the operators)
from tests.compiler.renaming import NODE_NAMES, renamed
from verax.base.errors import GraphError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Exp", "HardSwish", "Softplus", "Erf", "Floor")
BINARY = ("Add", "Mul", "Sub", "Max", "Min")


def array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@st.composite
def networks(draw: st.DrawFn, most_nodes: int = 7) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of up to `most_nodes` nodes over an image-like input, and the input's values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    channels = draw(st.sampled_from([3, 5, 16, 20, 33]))
    shape = (draw(st.integers(1, 2)), channels, draw(st.integers(5, 13)), draw(st.integers(4, 11)))
    b = Builder("random")
    values = [b.input("x", TensorType(DType.float32, shape))]
    for _ in range(draw(st.integers(1, most_nodes))):
        try:
            values += _add_node(draw, rng, b, draw(st.sampled_from(values)), values)
        except GraphError:
            continue  # a window larger than its input, for instance: the type rule refused it
    made = [v for v in values if v != "x"] or [b.add(REGISTRY["Relu"](), ["x"])]
    outputs = {made[-1], draw(st.sampled_from(made))}
    graph = renamed(b.graph(sorted(outputs)), draw(st.sampled_from(list(NODE_NAMES))))
    return graph, {"x": array(rng, *shape)}


def _add_node(
    draw: st.DrawFn, rng: np.random.Generator, b: Builder, x: str, values: list[str]
) -> list[str]:
    dims = b.types[x].shape
    kind = draw(st.sampled_from(
        ["conv", "depthwise", "grouped", "deconv", "pool", "mean", "unary", "binary", "norm",
         "transpose", "concat", "slice", "pad", "softmax", "reduce", "reshape"]
    ))  # fmt: skip
    if kind in ("conv", "depthwise", "grouped", "deconv", "pool", "norm") and len(dims) != 4:
        kind = "unary"
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(2))
    strides = (draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    if kind in ("conv", "depthwise", "grouped"):
        groups = {"conv": 1, "depthwise": dims[1]}.get(kind) or _divisor(draw, dims[1])
        filters = groups * draw(st.sampled_from([1, 2, 5] if groups > 1 else [3, 16, 21, 40]))
        kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 3)))
        op = REGISTRY["Conv"](
            groups=groups, strides=strides, dilations=(draw(st.integers(1, 2)), 1),
            pads=draw(st.sampled_from([pads, "SAME_UPPER", "SAME_LOWER"])),
        )  # fmt: skip
        w = b.constant(array(rng, filters, dims[1] // groups, *kernel))
        bias = b.constant(array(rng, filters)) if draw(st.booleans()) else None
        return [b.add(op, [x, w, bias])]
    if kind == "deconv":
        groups = _divisor(draw, dims[1])
        w = b.constant(array(rng, dims[1], draw(st.sampled_from([1, 4, 17])), 3, 2))
        extra = tuple(draw(st.integers(0, s - 1)) for s in strides)
        op = REGISTRY["ConvTranspose"](
            groups=groups, strides=strides, pads=((1, 0), (0, 1)), output_padding=extra
        )
        return [b.add(op, [x, w])]
    if kind == "pool":
        name = draw(st.sampled_from(["MaxPool", "AveragePool"]))
        extra_args: dict[str, Any] = {"ceil_mode": draw(st.booleans())}
        if name == "AveragePool":
            extra_args["count_include_pad"] = draw(st.booleans())
        op = REGISTRY[name](kernel_shape=(3, 2), strides=strides, pads=((1, 0), (0, 1)),
                            **extra_args)  # fmt: skip
        return [b.add(op, [x])]
    if kind == "norm":
        c = dims[1]
        stats = [array(rng, c), array(rng, c), array(rng, c), np.abs(array(rng, c)) + 0.1]
        return [
            b.add(
                REGISTRY["BatchNormalization"](),
                [x, *(b.constant(s.astype(np.float32)) for s in stats)],
            )
        ]
    if kind == "binary":
        same = [v for v in values if b.types[v].dims == b.types[x].dims]
        other = draw(st.sampled_from([*same, b.constant(array(rng, *dims[-1:]))]))
        return [b.add(REGISTRY[draw(st.sampled_from(BINARY))](), [x, other])]
    if kind == "transpose":
        return [
            b.add(REGISTRY["Transpose"](perm=tuple(draw(st.permutations(range(len(dims)))))), [x])
        ]
    if kind == "concat":
        axis = draw(st.integers(0, len(dims) - 1))
        return [b.add(REGISTRY["Concat"](axis=axis), [x, x])]
    if kind == "slice":
        axis = draw(st.integers(0, len(dims) - 1))
        start, step = (dims[axis] - 1, -1) if draw(st.booleans()) else (0, 2)
        stop = -dims[axis] - 1 if step < 0 else dims[axis]
        given = [b.constant(np.array([v], np.int64)) for v in (start, stop, axis, step)]
        return [b.add(REGISTRY["Slice"](), [x, *given])]
    if kind == "pad":
        widths = np.array([draw(st.integers(-1, 2)) for _ in range(2 * len(dims))], np.int64)
        mode = draw(st.sampled_from(["constant", "edge"]))
        return [b.add(REGISTRY["Pad"](mode=mode), [x, b.constant(widths)])]
    if kind == "softmax":
        return [b.add(REGISTRY["Softmax"](axis=draw(st.integers(0, len(dims) - 1))), [x])]
    if kind in ("reduce", "mean"):
        axes = b.constant(np.array([len(dims) - 1], np.int64)) if len(dims) > 1 else None
        name = "ReduceMean" if kind == "mean" else "ReduceSum"
        return [b.add(REGISTRY[name](keepdims=draw(st.booleans())), [x, axes])]
    if kind == "reshape":
        return [b.add(REGISTRY["Reshape"](), [x, b.constant(np.array([dims[0], -1], np.int64))])]
    return [b.add(REGISTRY[draw(st.sampled_from(UNARY))](), [x])]


def _divisor(draw: st.DrawFn, n: int) -> int:
    return draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
