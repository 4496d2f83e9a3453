"""A detector as exporters write it, with random weights, for `benchmarks.sizes_networks`.

An SSD: convolutions of falling resolution, of which the last three predict offsets and scores of
three anchors per place for 21 classes; centers and sizes become corners; suppression per class; the
boxes and scores that are left are gathered, and the 100 best of them given with their classes. Both
sizes of the image are open, and data decide how many boxes there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

ANCHORS, CLASSES, BEST = 3, 21, 100
CHANNELS = (16, 32, 64, 96, 128, 160)
PREDICTING = 3
SEED = 21


class Network:
    """Nodes and constants of a model that is being written."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._rng = np.random.default_rng(SEED)

    def add(self, op: str, inputs: list[str], count: int = 1, **attributes: Any) -> Any:
        """The name of a node's output, or names."""
        names = [f"{op.lower()}_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], **attributes))
        return names[0] if count == 1 else names

    def constant(self, array: Any) -> str:
        name = f"c_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def weights(self, *shape: int, gain: float = 1.4) -> str:
        scale = gain / np.sqrt(np.prod(shape[1:]) or 1)
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def convolved(self, x: str, channels: int, into: int, stride: int, gain: float = 1.4) -> str:
        inputs = [x, self.weights(into, channels, 3, 3, gain=gain), self.weights(into)]
        return self.add("Conv", inputs, pads=[1, 1, 1, 1], strides=[stride, stride])


def detector() -> onnx.ModelProto:
    """float32 image [1, 3, h, w] -> boxes [n, 4], scores [n], classes [n]."""
    net = Network()
    x, channels = "image", 3
    offsets, scores = [], []
    for i, into in enumerate(CHANNELS):
        x = net.add("Relu", [net.convolved(x, channels, into, 2)])
        if i < PREDICTING - 1:  # some more work at high resolution
            x = net.add("Relu", [net.convolved(x, into, into, 1)])
        channels = into
        if i >= len(CHANNELS) - PREDICTING:
            for found, width, gain in ((offsets, 4, 0.5), (scores, CLASSES, 6.0)):
                y = net.convolved(x, channels, ANCHORS * width, 1, gain)
                y = net.add("Transpose", [y], perm=[0, 2, 3, 1])
                found.append(net.add("Reshape", [y, net.ints(0, -1, width)]))
    raw = net.add("Concat", offsets, axis=1)
    likely = net.add("Softmax", [net.add("Concat", scores, axis=1)], axis=-1)
    likely = net.add("Transpose", [likely], perm=[0, 2, 1])
    middle, size = (
        net.add("Slice", [raw, net.ints(k), net.ints(k + 2), net.ints(2)]) for k in (0, 2)
    )
    size = net.add("Mul", [net.add("Exp", [size]), net.constant(np.float32(0.5))])
    corners = [net.add(op, [middle, size]) for op in ("Sub", "Add")]
    boxes = net.add("Concat", corners, axis=2)
    limits = [net.ints(50), net.constant(np.float32([0.45])), net.constant(np.float32([0.3]))]
    found = net.add("NonMaxSuppression", [boxes, likely, *limits])
    kept = net.add("GatherND", [likely, found])
    of_class, of_box = (
        net.add("Gather", [found, net.constant(np.int64(k))], axis=1) for k in (1, 2)
    )
    count = net.add("Min", [net.add("Shape", [kept]), net.ints(BEST)])
    best, order = net.add("TopK", [kept, count], 2, axis=0)
    chosen = net.add("Gather", [of_box, order], axis=0)
    corners = net.add("Gather", [net.add("Squeeze", [boxes, net.ints(0)]), chosen], axis=0)
    results = (corners, best, net.add("Gather", [of_class, order], axis=0))
    renamed = [
        helper.make_node("Identity", [value], [name], name=name)
        for value, name in zip(results, ("boxes", "scores", "classes"), strict=True)
    ]
    types = (TensorProto.FLOAT, ["n", 4]), (TensorProto.FLOAT, ["n"]), (TensorProto.INT64, ["n"])
    graph = helper.make_graph(
        [*net.nodes, *renamed],
        "ssd",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [
            helper.make_tensor_value_info(name, *type_)
            for name, type_ in zip(("boxes", "scores", "classes"), types, strict=True)
        ],
        net.constants,
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    onnx.checker.check_model(model)
    return model
