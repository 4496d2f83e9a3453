"""Small CoreML models for the tests, made of the message classes themselves.

Importing coremltools takes half a minute; its message classes alone take none. The formulas that
witness what a layer means are written out here from NeuralNetwork.proto, one loop per formula.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verax.frontends.coreml.messages import model_messages

FLOAT32 = 65568
EXACT = 5
SHARED = Path(__file__).resolve().parents[3].parent / "shared"
Layer = tuple[str, str, Sequence[str], Sequence[str], Callable[[Any], None]]


def unpacked(folder: Path, arrays: Mapping[str, np.ndarray], name: str) -> Path:
    """The package NAME.mlpackage in a folder, of the bytes that NAME/model and NAME/weights are."""
    root = folder / f"{name}.mlpackage"
    inner = root / "Data" / "com.apple.CoreML"
    (inner / "weights").mkdir(parents=True)
    (inner / "model.mlmodel").write_bytes(arrays[f"{name}/model"].tobytes())
    if f"{name}/weights" in arrays:
        (inner / "weights" / "weight.bin").write_bytes(arrays[f"{name}/weights"].tobytes())
    entry = {"path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"itemInfoEntries": {"m": entry}, "rootModelIdentifier": "m"}
    (root / "Manifest.json").write_text(json.dumps(manifest))
    return root


def network(
    layers: Sequence[Layer],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    version: int = EXACT,
) -> Any:
    """A Model message. Layers are (kind, name, inputs, outputs, what to set in the parameters)."""
    model = model_messages().Model()
    model.specificationVersion = version
    for features, given in ((model.description.input, inputs), (model.description.output, outputs)):
        for name, shape in given.items():
            feature = features.add()
            feature.name = name
            feature.type.multiArrayType.dataType = FLOAT32
            feature.type.multiArrayType.shape.extend(shape)
    if version >= EXACT:
        model.neuralNetwork.arrayInputShapeMapping = 1
    for kind, name, read, made, fill in layers:
        layer = model.neuralNetwork.layers.add()
        layer.name = name
        layer.input.extend(read)
        layer.output.extend(made)
        params = getattr(layer, kind)
        params.SetInParent()
        fill(params)
    return model


@dataclass(frozen=True)
class Case:
    """One layer, its inputs' shapes, and its meaning in NumPy (float64)."""

    kind: str
    shapes: Sequence[Sequence[int]]
    fill: Callable[[Any], None]
    meaning: Callable[..., Any]
    label: str = ""
    outputs: int = 1
    low: float = -2.0
    given: Mapping[int, Any] = field(default_factory=dict)
    """Inputs whose values matter, by position."""

    def names(self) -> list[str]:
        return [f"x{i}" for i in range(len(self.shapes))]

    def model(self, change: Callable[[Any], None] = lambda params: None) -> Any:
        """The network of this layer; `change` alters its parameters."""

        def fill(params: Any) -> None:
            self.fill(params)
            change(params)

        made = [f"y{i}" for i in range(self.outputs)]
        inputs = dict(zip(self.names(), self.shapes))
        return network(
            [(self.kind, "layer", self.names(), made, fill)], inputs, dict.fromkeys(made, ())
        )

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(11)
        drawn = {
            n: rng.uniform(self.low, 2.0, s).astype(np.float32)
            for n, s in zip(self.names(), self.shapes)
        }
        for i, values in self.given.items():
            drawn[f"x{i}"] = np.asarray(values, np.float32)
        return drawn


def setting(**fields: Any) -> Callable[[Any], None]:
    """Sets fields of a message; `a__b` is field b of field a, lists are extended, arrays become
    weights."""

    def fill(params: Any) -> None:
        for path, value in fields.items():
            *way, last = path.split("__")
            message = params
            for name in way:
                message = getattr(message, name)
            if value is None:
                getattr(message, last).SetInParent()
            elif isinstance(value, np.ndarray):
                getattr(message, last).floatValue.extend(value.ravel().tolist())
            elif isinstance(value, tuple) and value and isinstance(value[0], tuple):
                for start, end in value:
                    edge = getattr(message, last).borderAmounts.add()
                    edge.startEdgeSize, edge.endEdgeSize = start, end
            elif isinstance(value, tuple):
                getattr(message, last).extend(value)
            else:
                setattr(message, last, value)

    return fill


def weights(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def same(size: int, kernel: int, stride: int, *, top_heavy: bool) -> tuple[int, int]:
    """Padding amounts of SamePadding."""
    out = -(-size // stride)
    total = max(0, (out - 1) * stride + kernel - size)
    half = total // 2
    return (total - half, half) if top_heavy else (half, total - half)


def conv(
    x: np.ndarray, w: np.ndarray, b: Any = 0.0, strides=(1, 1), pads=((0, 0), (0, 0)),
    dilations=(1, 1), groups: int = 1,
) -> np.ndarray:  # fmt: skip
    """Convolution, tap by tap."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    kernel = w.shape[2:]
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *size))
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for g, i, j in itertools.product(range(groups), range(kernel[0]), range(kernel[1])):
        rows, columns = (
            slice(p * d, p * d + (o - 1) * s + 1, s)
            for p, d, o, s in zip((i, j), dilations, size, strides)
        )
        seen = x[:, g * per_in : (g + 1) * per_in, rows, columns]
        part = w[g * per_out : (g + 1) * per_out, :, i, j].astype(np.float64)
        y[:, g * per_out : (g + 1) * per_out] += np.einsum("nchw,oc->nohw", seen, part)
    return y + np.reshape(b, (-1, 1, 1))


def deconv(
    x: np.ndarray, w: np.ndarray, b: Any = 0.0, strides=(1, 1), size=(0, 0), crop=(0, 0),
    groups: int = 1,
) -> np.ndarray:  # fmt: skip
    """Deconvolution: the scatter of every input, cut to `size` from `crop` on."""
    n, c, height, width = x.shape
    out = w.shape[1] * groups
    full = [max((s * (m - 1) + k), e + t) for s, m, k, e, t in
            zip(strides, (height, width), w.shape[2:], crop, size)]  # fmt: skip
    y = np.zeros((n, out, *full))
    per_in = c // groups
    for g, i, j in itertools.product(range(groups), range(w.shape[2]), range(w.shape[3])):
        part = w[g * per_in : (g + 1) * per_in, :, i, j].astype(np.float64)
        made = np.einsum("nchw,co->nohw", x[:, g * per_in : (g + 1) * per_in], part)
        where = (
            slice(g * w.shape[1], (g + 1) * w.shape[1]),
            slice(i, i + strides[0] * (height - 1) + 1, strides[0]),
            slice(j, j + strides[1] * (width - 1) + 1, strides[1]),
        )
        y[:, *where] += made
    cut = y[:, :, crop[0] : crop[0] + size[0], crop[1] : crop[1] + size[1]]
    return cut + np.reshape(b, (-1, 1, 1))


def pool(
    x: np.ndarray, join: Callable[[np.ndarray], Any], kernel, strides, pads, size=None
) -> np.ndarray:
    """`join` over the elements that lie inside the input, window by window."""
    size = size or [
        (n + sum(p) - k) // s + 1 for n, k, s, p in zip(x.shape[2:], kernel, strides, pads)
    ]
    y = np.zeros((*x.shape[:2], *size))
    for n, c, i, j in np.ndindex(*y.shape):
        parts = []
        for at, m, k, s, (begin, _) in zip((i, j), x.shape[2:], kernel, strides, pads):
            start = at * s - begin
            parts.append(slice(max(0, start), min(m, start + k)))
        y[n, c, i, j] = join(x[n, c, parts[0], parts[1]].astype(np.float64))
    return y


def linear(x: np.ndarray, grids: Sequence[np.ndarray]) -> np.ndarray:
    """Bilinear samples of the last two axes at the given coordinates."""
    for axis, at in zip((-2, -1), grids):
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, x.shape[axis] - 1)
        shape = [1] * x.ndim
        shape[axis] = -1
        share = (at - low).reshape(shape)
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x
