"""Honest quantised networks: small, seeded, made by ONNX Runtime's own quantisation tools.

`cases(seed, count)` gives networks with their inputs, each of another structure and another
way of quantising: QDQ and QOperator and dynamic, per tensor and per channel, signed and unsigned
activations and weights, 16-bit activations, symmetric ranges, a reduced range of weights.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
CALIBRATIONS = 3
"""Inputs from which the ranges are taken."""
ACTIVATIONS = ("Relu", "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "Swish", "Tanh", "")


@dataclass(frozen=True)
class Case:
    """A quantised network and the inputs, by name, that it is judged on."""

    name: str
    model: onnx.ModelProto | Path
    inputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class Scheme:
    """A way of quantising. kind: QDQ, QOperator or dynamic; activations, weights: "QInt8" ..."""

    kind: str
    per_channel: bool
    activations: str = "QUInt8"
    weights: str = "QInt8"
    reduced: bool = False
    symmetric: bool = False

    @property
    def name(self) -> str:
        words = [self.kind, "channel" if self.per_channel else "tensor"]
        if self.kind != "dynamic":
            words.append(f"a{self.activations[1:].lower()}")
        words.append(f"w{self.weights[1:].lower()}")
        words += ["reduced"] * self.reduced + ["symmetric"] * self.symmetric
        return "-".join(words)


STRIDE = 11
"""How many schemes later each seed begins, so that few networks of many seeds have all of them."""
SCHEMES = (
    *(
        Scheme(kind, per_channel, activations, weights, reduced)
        for kind in ("QDQ", "QOperator")
        for per_channel in (False, True)
        for activations, weights in (("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8"))
        for reduced in (False, True)
    ),
    Scheme("QDQ", False, "QInt16", "QInt8"),
    Scheme("QDQ", True, "QUInt16", "QInt8"),
    Scheme("QDQ", True, "QInt8", "QInt8", symmetric=True),
    Scheme("QOperator", False, "QInt8", "QInt8", symmetric=True),
    *(Scheme("dynamic", c, weights=w) for c in (False, True) for w in ("QInt8", "QUInt8")),
)


@dataclass
class Sketch:
    """An ONNX network while it is drawn; shapes of its values are tracked."""

    random: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def normal(self, *shape: int, spread: float = 1.0) -> str:
        return self.constant((spread * self.random.standard_normal(shape)).astype(np.float32))

    def add(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        self.shapes[name] = shape
        return name

    def whole(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)


def _activation(s: Sketch, x: str) -> str:
    kind = ACTIVATIONS[s.whole(0, len(ACTIVATIONS) - 1)]
    shape = s.shapes[x]
    if kind == "":
        return x
    if kind == "Clip":
        ends = [s.constant(np.array(v, np.float32)) for v in (0, (1, 6)[s.whole(0, 1)])]
        return s.add("Clip", [x, *ends], shape)
    if kind == "HardSwish":
        gate = s.add("HardSigmoid", [x], shape, alpha=1 / 6, beta=0.5)
        return s.add("Mul", [x, gate], shape)
    if kind == "Swish":
        return s.add("Mul", [x, s.add("Sigmoid", [x], shape)], shape)
    if kind == "LeakyRelu":
        return s.add("LeakyRelu", [x], shape, alpha=0.1)
    return s.add(kind, [x], shape)


def _conv(s: Sketch, x: str, depthwise: bool = False, same: bool = False) -> str:
    """A convolution with a bias; same: it keeps the shape."""
    n, c, h, w = s.shapes[x]
    kernel = 3 if same else s.whole(1, 3)
    kernels = (kernel, kernel) if same or h < 4 or w < 4 else (kernel, s.whole(1, 3))
    pads = [1, 1, 1, 1] if same else [s.whole(0, k - 1) for k in (*kernels, *kernels)]
    strides = (1, 1) if same or min(h, w) < 7 else (s.whole(1, 2), s.whole(1, 2))
    outputs = c if depthwise or same else s.whole(3, 11)
    groups = c if depthwise else 1
    spread = float(np.sqrt(2 / (c // groups * kernels[0] * kernels[1])))
    weights = s.normal(outputs, c // groups, *kernels, spread=spread)
    sides = (h + pads[0] + pads[2], w + pads[1] + pads[3])
    size = [(side - k) // step + 1 for side, k, step in zip(sides, kernels, strides)]
    inputs = [x, weights, *([s.normal(outputs, spread=0.1)] if s.chance(0.8) else [])]
    return s.add("Conv", inputs, (n, outputs, *size), kernel_shape=list(kernels), pads=pads,
                 strides=list(strides), group=groups)  # fmt: skip


def _plain(s: Sketch, x: str) -> str:
    return _activation(s, _conv(s, x))


def _depthwise(s: Sketch, x: str) -> str:
    return _activation(s, _conv(s, x, depthwise=True))


def _normalised(s: Sketch, x: str) -> str:
    y = _conv(s, x)
    count = s.shapes[y][1]
    ends = [s.random.uniform(low, high, count) for low, high in ((0.5, 1.5), (-0.3, 0.3))]
    ends += [s.random.uniform(low, high, count) for low, high in ((-0.2, 0.2), (0.5, 1.5))]
    numbers = [s.constant(e.astype(np.float32)) for e in ends]
    return _activation(s, s.add("BatchNormalization", [y, *numbers], s.shapes[y]))


def _residual(s: Sketch, x: str) -> str:
    y = _conv(s, _activation(s, _conv(s, x, same=True)), same=True)
    return _activation(s, s.add("Add", [x, y], s.shapes[x]))


def _concat(s: Sketch, x: str) -> str:
    n, c, h, w = s.shapes[x]
    y = _activation(s, _conv(s, x, same=True))
    return s.add("Concat", [x, y], (n, 2 * c, h, w), axis=1) if c < 12 else y


def _pool(s: Sketch, x: str) -> str:
    n, c, h, w = s.shapes[x]
    if min(h, w) < 4:
        return x
    kind = ("MaxPool", "AveragePool")[s.whole(0, 1)]
    size = (h - 2) // 2 + 1, w - 2
    return s.add(kind, [x], (n, c, *size), kernel_shape=[2, 3], strides=[2, 1])


def _squeeze(s: Sketch, x: str) -> str:
    """Squeeze and excitation: channels scaled by what their means say."""
    n, c, _, _ = s.shapes[x]
    mean = s.add("GlobalAveragePool", [x], (n, c, 1, 1))
    inner = s.whole(2, 4)
    weights = s.normal(inner, c, 1, 1), s.normal(c, inner, 1, 1)
    y = s.add("Relu", [s.add("Conv", [mean, weights[0]], (n, inner, 1, 1))], (n, inner, 1, 1))
    gate = s.add("Sigmoid", [s.add("Conv", [y, weights[1]], (n, c, 1, 1))], (n, c, 1, 1))
    return s.add("Mul", [x, gate], s.shapes[x])


def _upsampled(s: Sketch, x: str) -> str:
    n, c, h, w = s.shapes[x]
    if h * w > 120:
        return x
    factors = s.constant(np.array([1, 1, 2, 2], np.float32))
    return s.add("Resize", [x, "", factors], (n, c, 2 * h, 2 * w), mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


def _transposed(s: Sketch, x: str) -> str:
    n, c, h, w = s.shapes[x]
    if h * w > 120:
        return x
    outputs = s.whole(3, 7)
    weights = s.normal(c, outputs, 2, 2, spread=float(np.sqrt(1 / c)))
    return s.add("ConvTranspose", [x, weights], (n, outputs, 2 * h, 2 * w), kernel_shape=[2, 2],
                 strides=[2, 2])  # fmt: skip


BLOCKS: tuple[Callable[[Sketch, str], str], ...] = (
    *(_plain, _plain, _depthwise, _residual, _residual, _concat, _pool, _squeeze, _normalised),
    *(_upsampled, _transposed),
)


def _classified(s: Sketch, x: str) -> str:
    """A head: mean over the image, one or two dense layers, perhaps a softmax."""
    n, c, _, _ = s.shapes[x]
    mean = s.add("GlobalAveragePool", [x], (n, c, 1, 1))
    y = s.add("Flatten", [mean], (n, c))
    for size in (s.whole(5, 9), s.whole(3, 13))[s.whole(0, 1) :]:
        weights = s.normal(s.shapes[y][1], size, spread=float(np.sqrt(2 / s.shapes[y][1])))
        y = s.add("Gemm", [y, weights, s.normal(size, spread=0.1)], (n, size))
        y = _activation(s, y)
    return s.add("Softmax", [y], s.shapes[y], axis=-1) if s.chance(0.3) else y


def _images(s: Sketch) -> tuple[str, str]:
    """A network on images [2-3, 3-5, 8-13, 9-16]. -> input, output."""
    h = s.whole(8, 13)
    w = s.whole(9, 15)
    s.shapes["x"] = (s.whole(2, 3), s.whole(3, 5), h, w + (w == h))
    y = _plain(s, "x")
    for _ in range(s.whole(1, 5)):
        y = BLOCKS[s.whole(0, len(BLOCKS) - 1)](s, y)
    if s.chance(0.5):
        return "x", _classified(s, y)
    return "x", y if s.nodes[-1].output[0] == y else s.add("Relu", [y], s.shapes[y])


def _tokens(s: Sketch) -> tuple[str, str]:
    """Attention over tokens [2-3, 5-9, 6-12] with a dense block behind it. -> input, output."""
    n, t, d = s.whole(2, 3), s.whole(5, 9), s.whole(5, 6) * 2
    s.shapes["x"] = (n, t, d)

    def dense(x: str, size: int) -> str:
        width = s.shapes[x][-1]
        weights = s.normal(width, size, spread=float(np.sqrt(1 / width)))
        y = s.add("MatMul", [x, weights], (n, t, size))
        return s.add("Add", [y, s.normal(size, spread=0.1)], (n, t, size))

    query, key, value = (dense("x", d) for _ in range(3))
    turned = s.add("Transpose", [key], (n, d, t), perm=[0, 2, 1])
    scores = s.add("MatMul", [query, turned], (n, t, t))
    factor = s.constant(np.array(1 / np.sqrt(d), np.float32))
    weights = s.add("Softmax", [s.add("Mul", [scores, factor], (n, t, t))], (n, t, t), axis=-1)
    mixed = s.add("MatMul", [weights, value], (n, t, d))
    both = s.add("Add", ["x", dense(mixed, d)], (n, t, d))
    scale, shift = s.random.uniform(0.5, 1.5, d), s.random.uniform(-0.2, 0.2, d)
    numbers = [s.constant(a.astype(np.float32)) for a in (scale, shift)]
    y = s.add("LayerNormalization", [both, *numbers], (n, t, d), axis=-1)
    y = dense(_activation(s, dense(y, 2 * d - 1)), d)
    return "x", s.add("Add", [both, y], (n, t, d))


def network(seed: int) -> onnx.ModelProto:
    """A small float32 network with one input `x` and one output; equal seeds give equal ones."""
    s = Sketch(np.random.default_rng([seed, 41]))
    given, result = (_tokens if s.chance(0.15) else _images)(s)
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        s.nodes,
        f"network{seed}",
        [helper.make_tensor_value_info(given, float32, s.shapes[given])],
        [helper.make_tensor_value_info(result, float32, s.shapes[result])],
        s.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


class _Calibration:
    """Inputs of one shape, as ONNX Runtime's tools read them."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.left = list(arrays)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"x": self.left.pop()} if self.left else None


def quantised(model: onnx.ModelProto, scheme: Scheme, arrays: list[np.ndarray]) -> onnx.ModelProto:
    """`model` quantised by ONNX Runtime's tools, with ranges taken from `arrays`."""
    from onnxruntime import quantization as tools

    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder, "quantised.onnx")
        weights = getattr(tools.QuantType, scheme.weights)
        if scheme.kind == "dynamic":
            tools.quantize_dynamic(model, path, per_channel=scheme.per_channel, weight_type=weights)
        else:
            tools.quantize_static(
                model,
                path,
                _Calibration(arrays),
                quant_format=getattr(tools.QuantFormat, scheme.kind),
                per_channel=scheme.per_channel,
                reduce_range=scheme.reduced,
                activation_type=getattr(tools.QuantType, scheme.activations),
                weight_type=weights,
                extra_options={"ActivationSymmetric": True} if scheme.symmetric else None,
            )
        return onnx.load(path)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the tools' advice to preprocess networks."""
    level = logging.root.level
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logging.root.setLevel(level)


def scheme_of(seed: int, number: int) -> Scheme:
    """How the network `number` of a seed is quantised: the schemes come in turn."""
    return SCHEMES[(STRIDE * seed + number) % len(SCHEMES)]


def case(seed: int, number: int) -> Case:
    """The network `number` of a seed."""
    scheme = scheme_of(seed, number)
    model = network(1000 * seed + number)
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    random = np.random.default_rng([seed, number, 43])
    arrays = [random.standard_normal(shape).astype(np.float32) for _ in range(CALIBRATIONS + 1)]
    made = quantised(model, scheme, arrays[1:])
    return Case(f"{scheme.name} #{1000 * seed + number}", made, {"x": arrays[0]})


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` quantised networks; equal arguments give equal ones."""
    for number in range(count):
        yield case(seed, number)
