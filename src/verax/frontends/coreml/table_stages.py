"""CoreML models that are no networks: box suppression and the arithmetic of feature engineering."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.rows import row
from verax.frontends.coreml.stages import DOMAIN
from verax.frontends.coreml.suppression import picked, suppress, threshold_above

row("identity", domain=DOMAIN)(
    lambda c: tuple(
        c.builder.add(c.operator("Identity"), [c.required(i)], [name], c.node.name)
        for i, name in enumerate(c.node.outputs)
    )
)


@row("nonMaximumSuppression", domain=DOMAIN)
def non_maximum_suppression(c: Conversion) -> Result:
    """Confidence [N, C] and coordinates [N, 4] of the boxes that stay, best first.

    A number of rows that the outputs declare is reached with rows of zeros.
    """
    a, threshold_inputs = c.attributes, c.attributes.get("given", ())
    if a.text("SuppressionMethod", "pickTop") != "pickTop":
        a.refuse("SuppressionMethod", "unknown method")
    inputs = {name: c.required(2 + i) for i, name in enumerate(threshold_inputs)}
    overlap, min_score = (inputs.get(n) for n in ("iouThreshold", "confidenceThreshold"))
    overlap = overlap or c.constant(a.get("iouThreshold"), np.float32)
    min_score = min_score or c.constant(threshold_above(a.get("confidenceThreshold")))
    confidence, boxes = c.type(0), c.type(1)
    if confidence.rank != 2 or boxes.rank != 2 or boxes.dims[1] != 4:
        c.refuse(f"confidence {confidence} and coordinates {boxes} are not [N, C] and [N, 4]")
    if not isinstance(confidence.dims[0], int):
        c.refuse(f"the number of boxes of {confidence} must be known")
    low, high = a.integers("rows")
    max_rows = confidence.dims[0] if high == -1 else high
    wide = [c.add("Unsqueeze", [c.required(i), c.ints((0,))]) for i in (1, 0)]
    suppression = suppress(
        c,
        wide[0],
        wide[1],
        overlap,
        min_score,
        per_class=a.flag("pickTop.perClass"),
        rows=max(1, max_rows),
    )
    sizes = max(low, min(max_rows, confidence.dims[0]))
    names = []
    for values, name in zip(reversed(wide), c.node.outputs):
        rows = c.add("Squeeze", [picked(c, suppression, values, sizes), c.ints((0,))])
        if low >= sizes and max_rows:
            names.append(c.builder.add(c.operator("Identity"), [rows], [name], c.node.name))
            continue
        end = c.add("Min", [c.add("Max", [suppression.count, c.ints((low,))]), c.ints((max_rows,))])
        op = c.operator("Slice")
        names.append(c.builder.add(op, [rows, c.ints((0,)), end], [name], c.node.name))
    return tuple(names)


@row("scaler", domain=DOMAIN)
def scaler(c: Conversion) -> Result:
    """scaleValue * (x + shiftValue), both single numbers or one per element."""
    x, size = c.required(0), c.type(0).size
    for name, kind in (("shiftValue", "Add"), ("scaleValue", "Mul")):
        numbers = np.array(c.attributes.numbers(name, ()), np.float32)
        if numbers.size > 1 and (numbers.size != size or c.rank() != 1):
            raise ModelError(f"{numbers.size} numbers {name} for {c.type(0)}", place=c.node.place)
        if numbers.size:
            x = c.add(kind, [x, c.constant(numbers if numbers.size > 1 else numbers[0])])
    return c.result("Identity", [x])


@row("normalizer", domain=DOMAIN)
def normalizer(c: Conversion) -> Result:
    """x over its norm: the largest magnitude, the sum of magnitudes, or the Euclidean length."""
    kind = c.text("normType", "LMax")
    if kind == "LMax":
        c.refuse("normType LMax: the format does not say whether signs count")
    name = "ReduceL1" if kind == "L1" else "ReduceL2"
    norm = c.add(name, [c.required(0), c.ints(range(c.rank()))])
    return c.result("Div", [c.required(0), norm])


@row("featureVectorizer", domain=DOMAIN)
def feature_vectorizer(c: Conversion) -> Result:
    """All inputs, flattened, one after the other."""
    vectors, sizes = [], c.integers("inputDimensions", ())
    for i, size in enumerate(sizes):
        if c.type(i).size != size:
            raise ModelError(f"{c.type(i)} as {size} numbers", place=c.node.place)
        vectors.append(c.add("Reshape", [c.required(i), c.ints((-1,))]))
    return c.result("Concat", vectors, axis=0)


@row("arrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(c: Conversion) -> Result:
    """Elements of a vector by position."""
    if c.rank() != 1:
        c.refuse(f"elements of {c.type(0)}, which is no vector")
    indices = c.integers("extractIndex", ())
    return c.result("Gather", [c.required(0), c.ints(indices)], axis=0)
