"""A small network with most of what goes wrong elsewhere, and mistakes to plant in it.

A mistake is a rival meaning of one node: other attributes, or a change of its numbers. The rest of
the network is honest float32 NumPy, so nothing but the planted node may be blamed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities
from verax.ops.movement.reshaping import Flatten
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.activation import LeakyRelu, Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import Gemm
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool
from verax.ops.windows.pooling import AveragePool, MaxPool
from verax.reference.evaluate import evaluate_node

Change = Callable[[Node, list[Any], np.ndarray], np.ndarray]


def small_network(seed: int = 0) -> Graph:
    """x [2, 3, 18, 22] -> logits [2, 5] and map [2, 4, 19, 23]; asymmetric in every way."""
    random = np.random.default_rng(seed)
    b = Builder("small")

    def weights(name: str, *shape: int) -> str:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return b.constant((random.standard_normal(shape) * scale).astype(np.float32), name)

    def per_channel(name: str, count: int, low: float, high: float) -> str:
        return b.constant(random.uniform(low, high, count).astype(np.float32), name)

    x = b.input("x", TensorType.parse("float32[n, 3, 18, 22]"))
    first = [x, weights("w1", 8, 3, 3, 3), per_channel("b1", 8, -0.2, 0.2)]
    h = b.add(Conv(strides=(2, 2), pads=((0, 1), (0, 1))), first, ["stem"], "stem")
    norm = [per_channel("gamma", 8, -1.5, 1.5), per_channel("beta", 8, -0.5, 0.5)]
    norm += [per_channel("mean", 8, -0.3, 0.3), per_channel("variance", 8, 0.002, 0.5)]
    h = b.add(BatchNormalization(epsilon=1e-3), [h, *norm], ["bn"], "bn")
    h = b.add(Relu(), [h], ["relu"], "relu")
    h = b.add(
        Conv(pads=((1, 1), (1, 1)), groups=8), [h, weights("w2", 8, 1, 3, 3)], ["depth"], "depth"
    )
    skip = b.add(LeakyRelu(alpha=0.1), [h], ["leaky"], "leaky")
    h = b.add(
        Conv(groups=2, pads=((1, 1), (2, 2)), dilations=(1, 2)),
        [skip, weights("w3", 8, 4, 3, 3)],
        ["grouped"],
        "grouped",
    )
    h = b.add(Add(), [h, skip], ["sum"], "sum")
    up = b.add(
        ConvTranspose(strides=(2, 2), pads=((1, 1), (1, 1)), output_padding=(1, 1)),
        [h, weights("w4", 8, 4, 3, 3)],
        ["map"],
        "up",
    )
    wide = MaxPool(kernel_shape=(3, 2), strides=(2, 2), pads=((1, 1), (0, 1)))
    pooled = b.add(wide, [h], ["pooled"], "maxpool")
    mean = b.add(
        AveragePool(kernel_shape=(3, 2), strides=(2, 2), pads=((1, 1), (0, 1))),
        [h],
        ["averaged"],
        "avgpool",
    )
    both = b.add(Concat(axis=1), [pooled, mean], ["both"], "concat")
    flat = b.add(Flatten(), [b.add(GlobalAveragePool(), [both], ["gap"], "gap")], ["flat"], "flat")
    dense = [flat, weights("w5", 5, 16), per_channel("b5", 5, -0.1, 0.1)]
    logits = b.add(Gemm(trans_b=True), dense, ["logits"], "gemm")
    return b.graph([b.add(Softmax(axis=1), [logits], ["probabilities"], "softmax"), up])


class Planted:
    """Float32 NumPy with `change` applied to the outputs of the node called `guilty`."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, guilty: Sequence[str] = (), change: Change | None = None) -> None:
        self.name, self.guilty, self.change = "planted", tuple(guilty), change
        self.capabilities = Capabilities(watches=True, truncates=True)

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values = {**graph.constants, **inputs}
        for node in graph.nodes:
            arrays = [None if v is None else values[v] for v in node.inputs]
            (y,) = evaluate(graph, node, arrays)
            if node.name in self.guilty and self.change is not None:
                y = np.asarray(self.change(node, arrays, y), np.float32)
            values[node.outputs[0]] = y
        wanted = {*graph.outputs, *(keep or ())}
        return {v: values[v] for v in values if v in wanted}


def evaluate(graph: Graph, node: Node, arrays: list[Any]) -> tuple[np.ndarray, ...]:
    """Outputs of one node in float32."""
    types = tuple(None if a is None else TensorType.of(a) for a in arrays)
    return evaluate_node(node, arrays, types, graph.output_types(node), np.float32)


def rival(**attributes: Any) -> Change:
    """The node with other attributes."""

    def change(node: Node, arrays: list[Any], y: np.ndarray) -> np.ndarray:
        other = Node(dataclasses.replace(node.op, **attributes), node.inputs, node.outputs)
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        (out,) = evaluate_node(other, arrays, types, (TensorType.of(y),), np.float32)
        return out

    return change


def with_inputs(edit: Callable[[list[Any]], list[Any]], **attributes: Any) -> Change:
    """The node on edited inputs, and with other attributes."""

    def change(node: Node, arrays: list[Any], y: np.ndarray) -> np.ndarray:
        return rival(**attributes)(node, edit(list(arrays)), y)

    return change


def on_output(edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    """A change of the numbers that came out."""
    return lambda node, arrays, y: edit(y.copy())


def edit_input(position: int, edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    """The node with one of its inputs edited."""

    def edited(arrays: list[Any]) -> list[Any]:
        arrays[position] = np.ascontiguousarray(edit(arrays[position].copy()))
        return arrays

    return with_inputs(edited)


def _one(array: np.ndarray, factor: float) -> np.ndarray:
    index = np.unravel_index(array.size // 2, array.shape)
    array[index] *= np.float32(factor)
    return array


def _drop_last(y: np.ndarray) -> np.ndarray:
    y[:, :, -1] = y[:, :, -2]
    return y


def _shift(y: np.ndarray) -> np.ndarray:
    return np.roll(y, 1, axis=3)


def _scale_through_relu(node: Node, arrays: list[Any], y: np.ndarray) -> np.ndarray:
    """relu(s x) computed as s relu(x), wrong where the channel's scale is negative."""
    sign = np.where(np.arange(y.shape[1]) % 3 == 0, -1, 1).reshape(1, -1, 1, 1)
    return np.maximum(arrays[0] * sign, 0) * sign


MISTAKES: dict[str, tuple[str, Change]] = {
    "SAME upper taken as lower": ("stem", rival(pads=((1, 0), (1, 0)))),
    "SAME taken as symmetric": (
        "stem",
        lambda n, a, y: rival(pads=((1, 1), (1, 1)))(n, a, np.empty((*y.shape[:2], 9, 11)))[
            :, :, : y.shape[2], : y.shape[3]
        ],
    ),
    "bias forgotten": ("stem", with_inputs(lambda a: a[:2])),
    "bias added twice": ("stem", edit_input(2, lambda b: b * 2)),
    "RGB taken as BGR": ("stem", edit_input(1, lambda w: w[:, ::-1])),
    "kernel flipped": ("stem", edit_input(1, lambda w: w[:, :, ::-1, ::-1])),
    "kernel transposed": ("stem", edit_input(1, lambda w: w.swapaxes(2, 3))),
    "one weight off by 1e-3": ("stem", edit_input(1, lambda w: _one(w, 1.001))),
    "epsilon 1e-5 for 1e-3": ("bn", rival(epsilon=1e-5)),
    "epsilon outside of the root": (
        "bn",
        edit_input(4, lambda v: ((np.sqrt(v) + np.float32(1e-3)) ** 2 - 1e-3).astype(np.float32)),
    ),
    "variance N / (N - 1)": ("bn", edit_input(4, lambda v: v * np.float32(1.01))),
    "gamma forgotten": ("bn", edit_input(1, np.ones_like)),
    "mean and beta swapped": ("bn", with_inputs(lambda a: [a[0], a[1], a[3], a[2], a[4]])),
    "negative scale through Relu": ("relu", _scale_through_relu),
    "Relu as Relu6": ("leaky", on_output(lambda y: np.clip(y, -1, 0.5))),
    "depthwise channels shifted": ("depth", edit_input(1, lambda w: np.roll(w, 1, axis=0))),
    "edge padding for zeros": (
        "depth",
        lambda n, a, y: with_inputs(
            lambda a: [np.pad(a[0], ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"), a[1]],
            pads=((0, 0), (0, 0)),
        )(n, a, y),
    ),
    "slope 0.01 for 0.1": ("leaky", rival(alpha=0.01)),
    "groups interleaved": (
        "grouped",
        edit_input(0, lambda x: x.reshape(2, 2, 4, 9, 11).swapaxes(1, 2).reshape(2, 8, 9, 11)),
    ),
    "output channels shuffled": (
        "grouped",
        on_output(lambda y: y.reshape(2, 2, 4, 9, 11).swapaxes(1, 2).reshape(y.shape)),
    ),
    "dilation dropped": ("grouped", rival(dilations=(1, 1), pads=((1, 1), (1, 1)))),
    "pads swapped": ("grouped", rival(pads=((2, 0), (2, 2)))),
    "addend forgotten": ("sum", lambda n, a, y: a[0]),
    "output_padding dropped": ("up", on_output(_drop_last)),
    "output shifted": ("up", on_output(_shift)),
    "kernel flipped in the transposed convolution": (
        "up",
        edit_input(1, lambda w: w[:, :, ::-1, ::-1]),
    ),
    "padding counts as zero in MaxPool": (
        "maxpool",
        lambda n, a, y: with_inputs(
            lambda a: [np.pad(a[0], ((0, 0), (0, 0), (1, 1), (0, 1)))], pads=((0, 0), (0, 0))
        )(n, a, y),
    ),
    "count_include_pad": ("avgpool", rival(count_include_pad=True)),
    "concatenated in the other order": ("concat", lambda n, a, y: np.concatenate(a[::-1], 1)),
    "mean over N + 1": ("gap", on_output(lambda y: y * np.float32(30 / 31))),
    "weights not transposed": (
        "gemm",
        edit_input(1, lambda w: w.T.reshape(w.shape)),
    ),
    "softmax over the batch": ("softmax", rival(axis=0)),
    "one element wrong": ("gemm", on_output(lambda y: _one(y, 1.0001))),
}
"""What is wrong, in words -> (guilty node, how)."""
