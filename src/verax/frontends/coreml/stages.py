"""CoreML models that are no networks but stand beside them in pipelines, as foreign nodes.

Non-maximum suppression of boxes, and the arithmetic of feature engineering on arrays: scaler,
normalizer, feature vectorizer, array feature extractor, identity. Each is one node of its kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.coreml.features import Feature, feature_of
from verax.frontends.coreml.layers import attributes_of
from verax.frontends.coreml.network import metadata_of
from verax.frontends.coreml.suppression import threshold_above
from verax.ir.types import DType

STAGES = (
    "nonMaximumSuppression",
    "scaler",
    "normalizer",
    "featureVectorizer",
    "arrayFeatureExtractor",
    "identity",
)
DOMAIN = "model"
"""Domain of the nodes that stand for whole models."""


def read_stage(model: Any, name: str, defaults: dict[str, np.ndarray]) -> ForeignModel:
    """The content of a Model message of one of the `STAGES`.

    defaults: receives thresholds that the file states and that an input may replace.
    Raises `ModelError`, `UnsupportedError`.
    """
    kind = model.WhichOneof("Type")
    params = getattr(model, kind)
    location = f"model {name!r}"
    attributes = attributes_of(params, location)
    inputs = {f.name: feature_of(f) for f in model.description.input}
    outputs = [feature_of(f) for f in model.description.output]
    metadata = metadata_of(model)
    if kind == "nonMaximumSuppression":
        read, written = _suppression(params, model, attributes, metadata, defaults, location)
        for feature in read:
            inputs.setdefault(feature, Feature(feature, "multiArrayType", None))
        ordered = [inputs[n] for n in read]
        values = [
            ForeignValue(f.name, DType.float32, ()) if f.name in defaults else _array(f, location)
            for f in ordered
        ]
        tensors = [_array(f, location) for n in written for f in outputs if f.name == n]
        if len(tensors) != len(written):
            raise ModelError(f"{written} are not all declared as outputs", place=location)
        declared = {f.name: f for f in tensors}
    else:
        values = [_array(f, location) for f in inputs.values()]
        tensors = [_array(f, location) for f in outputs]
        if kind == "featureVectorizer":
            values = _columns(params, values, attributes, location)
        output_count = len(values) if kind == "identity" else 1
        if len(tensors) != output_count or (len(values) != 1 and kind not in ("featureVectorizer",
                                                                       "identity")):  # fmt: skip
            raise ModelError(f"{len(values)} inputs, {len(tensors)} outputs", place=location)
        declared = {f.name: f for f in tensors}
    names = tuple(v.name for v in values)
    node = ForeignNode(kind, names, tuple(declared), attributes, "", DOMAIN)
    return ForeignModel(
        name=name,
        inputs=tuple(values),
        outputs=tuple(tensors),
        nodes=(node,),
        constants={},
        declared=declared,
        versions={"specification": int(model.specificationVersion)},
        metadata=metadata,
    )


def _array(feature: Feature, location: str) -> ForeignValue:
    if feature.kind != "multiArrayType":
        raise UnsupportedError(f"the feature {feature.name!r} is {feature.kind}", place=location)
    if feature.dtype is not DType.float32:
        raise UnsupportedError(f"the feature {feature.name!r} is {feature.dtype}", place=location)
    return feature.value()


def _suppression(
    params: Any, model: Any, attributes: dict[str, Any], metadata: dict[str, str],
    defaults: dict[str, np.ndarray], location: str,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Names of what a suppression reads (confidence, coordinates, thresholds) and makes.

    Its labels become metadata, its thresholds defaults, the names leave the attributes.
    """
    for key in [k for k in attributes if k.endswith("FeatureName")]:
        del attributes[key]
    for threshold in ("iouThreshold", "confidenceThreshold"):
        attributes[threshold] = float(getattr(params, threshold))
    labels = attributes.pop("ClassLabels", None)
    if labels:
        metadata["labels"] = "\n".join(map(str, attributes.pop(f"{labels}.vector", ())))
    attributes["rows"] = _rows(model, params, location)
    read = [params.confidenceInputFeatureName, params.coordinatesInputFeatureName]
    written = [params.confidenceOutputFeatureName, params.coordinatesOutputFeatureName]
    for threshold in ("iouThreshold", "confidenceThreshold"):
        if name := getattr(params, f"{threshold}InputFeatureName"):
            read.append(name)
            attributes["given"] = (*attributes.get("given", ()), threshold)
            if name in defaults:
                raise UnsupportedError(f"two stages read the threshold {name!r}", place=location)
            value = attributes.pop(threshold)
            rounded = np.float32 if threshold == "iouThreshold" else threshold_above
            defaults[name] = np.asarray(rounded(value))
            metadata[f"input {name}"] = f"{defaults[name]} unless it is given"
    if not all((*read, *written)) or len({*read, *written}) != len(read) + len(written):
        raise ModelError(f"features {read} and {written}", place=location)
    return [str(n) for n in read], [str(n) for n in written]


def _rows(model: Any, params: Any, location: str) -> tuple[int, int]:
    """How few and how many boxes go out, by the declared shapes; -1 is any number."""
    output_names = (params.confidenceOutputFeatureName, params.coordinatesOutputFeatureName)
    row_limits: tuple[int, int] | None = None
    for feature in model.description.output:
        if feature.name not in output_names:
            raise UnsupportedError(f"the output {feature.name!r}", place=location)
        array = feature.type.multiArrayType
        flexible = array.WhichOneof("ShapeFlexibility")
        if flexible == "enumeratedShapes":
            raise UnsupportedError("enumerated shapes of the boxes", place=location)
        limits = None
        if flexible == "shapeRange" and len(array.shapeRange.sizeRanges):
            first = array.shapeRange.sizeRanges[0]
            limits = (int(first.lowerBound), int(first.upperBound))
        elif len(array.shape):
            limits = (int(array.shape[0]), int(array.shape[0]))
        if limits and row_limits not in (None, limits):
            raise ModelError(f"boxes in number {row_limits} and {limits}", place=location)
        row_limits = limits or row_limits
    low, high = row_limits or (0, -1)
    if high != -1 and high < low:
        raise ModelError(f"from {low} to {high} boxes", place=location)
    return low, max(high, -1)


def _columns(
    params: Any, values: list[ForeignValue], attributes: dict[str, Any], location: str
) -> list[ForeignValue]:
    """A vectorizer's inputs in the order of its list, which has their sizes."""
    by_name = {v.name: v for v in values}
    names = [str(c.inputColumn) for c in params.inputList]
    if set(names) != set(by_name) or len(names) != len(by_name):
        raise ModelError(f"the columns {names} are not the inputs {list(by_name)}", place=location)
    attributes.pop("inputList", None)
    attributes["inputDimensions"] = tuple(int(c.inputDimensions) for c in params.inputList)
    return [by_name[n] for n in names]
