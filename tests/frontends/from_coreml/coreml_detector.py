"""An SSD detector as CoreML files have it: a pipeline of a backbone with two heads, a decoder with
anchors, and non-maximum suppression; and the same stated in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from coreml_models import conv, network, same, setting, weights

from verax.frontends.coreml.messages import model_messages

DOUBLE, BGR = 65600, 30
CLASSES, ANCHORS = 3, 2
SIZE = (3, 22, 18)
GRID = (6, 5)
COUNT = ANCHORS * GRID[0] * GRID[1]
LABELS = ("cat", "dog", "owl")

W1, B1 = weights(8, 3, 3, 3) / 2, weights(8, seed=6) / 4
W2 = weights(6, 8, 3, 3, seed=7) / 2
WS = weights(ANCHORS * (CLASSES + 1), 6, 1, 1, seed=8)
WB = weights(ANCHORS * 4, 6, 3, 3, seed=9) / 2
SCALE, BIAS = 2 / 255, (-1.0, -0.75, -0.5)


def anchors() -> np.ndarray:
    """[4, COUNT]: centre y, centre x, height, width, cell by cell."""
    rows, columns, shape = np.meshgrid(*(np.arange(n) for n in (*GRID, ANCHORS)), indexing="ij")
    high, wide = np.array([0.3, 0.5])[shape], np.array([0.4, 0.25])[shape]
    centre = [(rows + 0.5) / GRID[0], (columns + 0.5) / GRID[1]]
    return np.stack([*centre, high, wide]).reshape(4, -1).astype(np.float32)


def backbone() -> Any:
    """A legacy network: a BGR image to scores [classes + 1, COUNT, 1] and boxes [4, COUNT, 1]."""

    def dense(w, *more):
        base = {"outputChannels": len(w), "kernelChannels": w.shape[1], "weights": w}
        return setting(**base, kernelSize=w.shape[2:], same=None, stride=(2, 2) if more else (1, 1))

    def first(params):
        dense(W1, 2)(params)
        setting(hasBias=True, bias=B1)(params)

    def head(name, w, depth):
        return [
            ("convolution", name, ["f"], [name], dense(w)),
            ("permute", f"{name}_p", [name], [f"{name}_p"], setting(axis=(0, 2, 3, 1))),
            ("reshape", f"{name}_r", [f"{name}_p"], [f"{name}_r"],
             setting(targetShape=(COUNT, depth, 1))),
            ("permute", f"{name}_q", [f"{name}_r"], [f"{name}_q"], setting(axis=(0, 2, 1, 3))),
        ]  # fmt: skip

    layers = [
        ("convolution", "c1", ["image"], ["c1"], first),
        ("activation", "a1", ["c1"], ["a1"], setting(ReLU=None)),
        ("convolution", "c2", ["a1"], ["c2"], dense(W2, 2)),
        ("activation", "a2", ["c2"], ["f"], setting(leakyReLU__alpha=0.25)),
        *head("scores", WS, CLASSES + 1),
        *head("boxes", WB, 4),
        ("softmax", "soft", ["scores_q"], ["scores_s"], setting()),
    ]
    shapes = {"scores_s": (CLASSES + 1, COUNT, 1), "boxes_q": (4, COUNT, 1)}
    model = network(layers, {}, shapes, 1)
    _image(model.description.input.add())
    step = model.neuralNetwork.preprocessing.add()
    step.featureName = "image"
    step.scaler.channelScale = SCALE
    step.scaler.blueBias, step.scaler.greenBias, step.scaler.redBias = BIAS
    return model


def decoder() -> Any:
    """A legacy network: boxes about their anchors, and the scores without the background."""
    part = {"y": (0, 2), "h": (2, 4)}
    a = anchors()[:, :, None]

    def slice_(name, source, made, start, end, axis=0):
        fill = setting(startIndex=start, endIndex=end, stride=1, axis=axis)
        return ("slice", name, [source], [made], fill)

    def constant(name, values):
        return ("loadConstant", name, [], [name], setting(shape=values.shape, data=values))

    layers = [
        ("permute", "p1", ["scores_s"], ["turned"], setting(axis=(0, 3, 2, 1))),
        slice_("s1", "turned", "raw_confidence", 1, CLASSES + 1, 2),
        slice_("s2", "boxes_q", "yx", *part["y"]),
        slice_("s3", "boxes_q", "hw", *part["h"]),
        constant("anchor_yx", a[:2]),
        constant("anchor_hw", a[2:]),
        ("multiply", "m1", ["yx"], ["yx_small"], setting(alpha=0.125)),
        ("multiply", "m2", ["yx_small", "anchor_hw"], ["moved"], setting()),
        ("add", "a1", ["moved", "anchor_yx"], ["centre"], setting()),
        ("unary", "u1", ["hw"], ["grown"], setting(type=4, scale=0.25)),
        ("multiply", "m3", ["grown", "anchor_hw"], ["size"], setting()),
        slice_("s4", "centre", "cy", 0, 1),
        slice_("s5", "centre", "cx", 1, 2),
        slice_("s6", "size", "h", 0, 1),
        slice_("s7", "size", "w", 1, 2),
        ("concat", "j", ["cx", "cy", "w", "h"], ["joined"], setting()),
        ("permute", "p2", ["joined"], ["raw_coordinates"], setting(axis=(0, 3, 2, 1))),
    ]
    inputs = {"scores_s": (CLASSES + 1, COUNT, 1), "boxes_q": (4, COUNT, 1)}
    outputs = {"raw_confidence": (COUNT, CLASSES), "raw_coordinates": (COUNT, 4)}
    return network(layers, inputs, outputs, 1)


def suppression(
    *, per_class: bool = True, overlap: float = 0.3, least: float = 0.26, rows: Any = None,
    overridable: bool = False, count: int = COUNT,
) -> Any:  # fmt: skip
    """The model that thins boxes out. rows: limits of their number, or one number."""
    model = model_messages().Model()
    model.specificationVersion = 3
    n = model.nonMaximumSuppression
    n.pickTop.perClass = per_class
    n.stringClassLabels.vector.extend(LABELS)
    n.iouThreshold, n.confidenceThreshold = overlap, least
    n.confidenceInputFeatureName, n.coordinatesInputFeatureName = (
        "raw_confidence",
        "raw_coordinates",
    )
    n.confidenceOutputFeatureName, n.coordinatesOutputFeatureName = "confidence", "coordinates"
    if overridable:
        n.iouThresholdInputFeatureName = "iouThreshold"
        n.confidenceThresholdInputFeatureName = "confidenceThreshold"
    for features, names in (
        (model.description.input, ("raw_confidence", "raw_coordinates")),
        (model.description.output, ("confidence", "coordinates")),
    ):
        for name, width in zip(names, (CLASSES, 4)):
            feature = features.add()
            feature.name = name
            array = feature.type.multiArrayType
            array.dataType = DOUBLE
            if name.startswith("raw"):
                array.shape.extend((count, width))
            elif isinstance(rows, int):
                array.shape.extend((rows, width))
            else:
                for low, high in (rows or (0, -1), (width, width)):
                    limits = array.shapeRange.sizeRanges.add()
                    limits.lowerBound, limits.upperBound = low, high
    return model


def detector(**options: Any) -> Any:
    """The whole pipeline."""
    model = model_messages().Model()
    model.specificationVersion = 3
    _image(model.description.input.add())
    if options.get("overridable"):
        for name in ("iouThreshold", "confidenceThreshold"):
            feature = model.description.input.add()
            feature.name = name
            feature.type.doubleType.SetInParent()
            feature.type.isOptional = True
    last = suppression(**options)
    model.description.output.extend(last.description.output)
    model.pipeline.models.extend([backbone(), decoder(), last])
    model.pipeline.names.extend(["backbone", "decoder", "suppression"])
    return model


def _image(feature: Any) -> None:
    feature.name = "image"
    image = feature.type.imageType
    image.height, image.width, image.colorSpace = SIZE[1], SIZE[2], BGR


def image(seed: int = 3) -> np.ndarray:
    """Pixels [1, 3, height, width], BGR."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (1, *SIZE)).astype(np.float32)


def raw_boxes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Confidence [COUNT, CLASSES] and coordinates [COUNT, 4] before suppression, in float64."""
    x = x.astype(np.float64) * np.float32(SCALE) + np.reshape(BIAS, (-1, 1, 1))

    def dense(v, w, b=0.0, stride=1):
        pads = [same(n, k, stride, top_heavy=False) for n, k in zip(v.shape[2:], w.shape[2:])]
        return conv(v, w, b, (stride, stride), pads)

    x = np.maximum(dense(x, W1, B1, 2), 0)
    x = dense(x, W2, 0.0, 2)
    x = np.where(x >= 0, x, 0.25 * x)
    scores, boxes = (dense(x, w)[0].transpose(1, 2, 0).reshape(COUNT, -1) for w in (WS, WB))
    e = np.exp(scores)
    scores = (e / e.sum(1, keepdims=True))[:, 1:]
    a = anchors().astype(np.float64).T
    centre = boxes[:, :2] * 0.125 * a[:, 2:] + a[:, :2]
    size = np.exp(0.25 * boxes[:, 2:]) * a[:, 2:]
    return scores, np.concatenate([centre[:, ::-1], size[:, ::-1]], 1)


def pick_top(
    scores: np.ndarray, boxes: np.ndarray, overlap: float, least: float, *, per_class: bool
) -> list[int]:
    """Positions of the boxes (x, y, width, height) that stay, step by step as the format says."""
    label, top = scores.argmax(1), scores.max(1)
    left = [int(i) for i in np.argsort(-top, kind="stable") if top[i] >= least]
    kept = []
    while left:
        best, *left = left
        kept.append(best)
        left = [
            i for i in left
            if (per_class and label[i] != label[best]) or ratio(boxes[i], boxes[best]) <= overlap
        ]  # fmt: skip
    return kept


def ratio(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes (x, y, width, height)."""
    sides = [
        max(0.0, min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2)
            - max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2))
        for i in (0, 1)
    ]  # fmt: skip
    common = sides[0] * sides[1]
    return common / (a[2] * a[3] + b[2] * b[3] - common)
