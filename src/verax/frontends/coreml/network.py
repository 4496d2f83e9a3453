"""A CoreML NeuralNetwork specification -> foreign nodes.

Legacy networks (and all before version 4) have tensors of five axes, [sequence, batch, channel,
height, width]. Declared arrays are [C, H, W] or [C]; a node at each border turns them into what
layers see, which here is [1, C, H, W], and back.
"""

from __future__ import annotations

from typing import Any

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.coreml.features import Feature, allowed_sizes, feature_of, preprocessing_node
from verax.frontends.coreml.layers import attributes_of
from verax.frontends.coreml.messages import refuse_unknown
from verax.frontends.coreml.rows import LEGACY
from verax.ir.types import DType

MAX_RANK = 32

KINDS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")


def read_network(model: Any, name: str) -> ForeignModel:
    """The content of a Model message that holds a neural network.

    Raises `ModelError`, `UnsupportedError`.
    """
    return _NetworkReader(model).read(name)


class _NetworkReader:
    def __init__(self, model: Any) -> None:
        self.model = model
        self.kind = model.WhichOneof("Type")
        self.network = getattr(model, self.kind)
        self.inputs = [feature_of(f) for f in model.description.input]
        self.nodes: list[ForeignNode] = []
        self.names: dict[str, str] = {}
        self.declared: dict[str, ForeignValue] = {}
        self.metadata: dict[str, str] = metadata_of(model)
        refuse_unknown(self.network, "the network")
        mappings = {self._mapping(f) for f in self.inputs}
        if len(mappings) > 1:
            raise UnsupportedError("legacy and exact mappings of inputs are mixed")
        self.is_legacy = mappings == {"legacy"}
        self.version = LEGACY if self.is_legacy else max(LEGACY + 1, model.specificationVersion)

    def _mapping(self, feature: Feature) -> str:
        if feature.kind == "imageType":
            return "exact" if self.network.imageInputShapeMapping == 1 else "legacy"
        return "exact" if self.network.arrayInputShapeMapping == 1 else "legacy"

    def read(self, name: str) -> ForeignModel:
        for feature in self.inputs:
            self._input(feature)
        self._all_preprocessing_is_used()
        outputs = self._outputs()
        for layer in self.network.layers:
            self._layer(layer)
        for feature in outputs:
            self._output(feature)
        return ForeignModel(
            name=name,
            inputs=tuple(f.value() for f in self.inputs),
            outputs=tuple(ForeignValue(f.name, f.dtype, None, f.kind) for f in outputs),
            nodes=tuple(self.nodes),
            constants={},
            declared=self.declared,
            versions={"specification": int(self.model.specificationVersion)},
            metadata=self.metadata,
            sizes=allowed_sizes(self.model.description.input),
        )

    def _input(self, feature: Feature) -> None:
        name = feature.name
        if not name or name in self.names:
            raise ModelError("an input is unnamed or named twice", place=f"input {name!r}")
        self.names[name] = name
        if feature.kind == "imageType":
            self.metadata[f"input {name}"] = f"pixels 0..255, {feature.color}"
            steps = [p for p in self.network.preprocessing if p.featureName == name]
            if not steps and len(self.inputs) == 1:
                steps = [p for p in self.network.preprocessing if not p.featureName]
            for i, step in enumerate(steps):
                result = f"{name}/preprocessed" + (f"_{i}" if i else "")
                node = preprocessing_node(step, feature, result)
                self.nodes.append(_with_input(node, self.names[name]))
                self.names[name] = result
        elif self.is_legacy or feature.dtype is DType.int32:
            attributes = {"mapping": "RANK5_ARRAY_MAPPING"} if self.is_legacy else {}
            if feature.dtype is DType.int32:
                attributes["dataType"] = "int32"
            self.names[name] = f"{name}/array"
            self._add("array.input", (name,), (self.names[name],), attributes, f"input {name}")

    def _all_preprocessing_is_used(self) -> None:
        images = [f.name for f in self.inputs if f.kind == "imageType"]
        for step in self.network.preprocessing:
            refuse_unknown(step, "preprocessing")
            named = step.featureName
            if named not in images and (named or len(self.inputs) != 1 or not images):
                raise UnsupportedError(
                    f"preprocessing of {named!r}, which is no image input", place="preprocessing"
                )
            if not named and any(p.featureName for p in self.network.preprocessing):
                raise UnsupportedError(
                    "preprocessing with and without the name of its input", place="preprocessing"
                )

    def _outputs(self) -> list[Feature]:
        """Declared outputs that are tensors; a classifier's are its probabilities."""
        features = [feature_of(f) for f in self.model.description.output]
        if self.kind == "neuralNetworkClassifier":
            labels = self.network.WhichOneof("ClassLabels")
            if labels:
                texts = map(str, getattr(self.network, labels).vector)
                self.metadata["labels"] = "\n".join(texts)
            produced = [o for layer in self.network.layers for o in layer.output]
            probabilities = self.network.labelProbabilityLayerName or (
                produced[-1] if produced else ""
            )
            by_layer = {x.name: x.output[0] for x in self.network.layers if len(x.output)}
            if probabilities not in produced and probabilities in by_layer:
                probabilities = by_layer[probabilities]
            self.probabilities = probabilities
            name = self.model.description.predictedProbabilitiesName or probabilities
            tensors = [f for f in features if f.kind in ("multiArrayType", "imageType")]
            return [Feature(name, "probabilities", None), *(f for f in tensors if f.name != name)]
        for feature in features:
            if feature.kind not in ("multiArrayType", "imageType"):
                raise UnsupportedError(
                    f"the output is {feature.kind}, not a tensor", place=f"output {feature.name!r}"
                )
        if not features:
            raise ModelError("the model has no outputs")
        return features

    def _layer(self, layer: Any) -> None:
        kind = layer.WhichOneof("layer")
        location = f"layer {layer.name!r}"
        if kind is None:
            refuse_unknown(layer, location)
            raise ModelError("the layer is of no kind", place=location)
        params = getattr(layer, kind)
        attributes = attributes_of(params, location)
        inputs = []
        for name in layer.input:
            if name not in self.names:
                raise ModelError(
                    f"{name!r} is read before anything defines it",
                    place=location,
                    next_step="the layers are not sorted, form a cycle, or the file is damaged",
                )
            inputs.append(self.names[name])
        outputs = []
        for name in layer.output:
            if not name or (name in self.names and kind != "copy"):
                raise ModelError(f"the value {name!r} is defined twice", place=location)
            inner = self._inner(name)
            if name in self.names:
                raise UnsupportedError("a value that is overwritten (in a loop)", place=location)
            self.names[name] = inner
            outputs.append(inner)
        if not self.is_legacy:
            for name, tensor in zip(outputs, layer.outputTensor):
                self._declare(name, tensor, location)
        self._add(kind, tuple(inputs), tuple(outputs), attributes, layer.name)

    def _declare(self, name: str, tensor: Any, location: str) -> None:
        """A recorded shape, against which the inferred one is held; -1 is any size."""
        dims = tuple(int(d) if d >= 0 else None for d in tensor.dimValue)
        if dims and len(dims) != tensor.rank:
            raise ModelError(f"a tensor of {tensor.rank} axes has the sizes {dims}", place=location)
        if dims or tensor.rank:
            known_dims = dims or (None,) * min(tensor.rank, MAX_RANK)
            self.declared[name] = ForeignValue(name, DType.float32, known_dims)

    def _inner(self, name: str) -> str:
        """The name of a layer's result: its own, unless a border node is to bear that."""
        declared = {f.name for f in self.model.description.output}
        predicted = self.model.description.predictedProbabilitiesName
        has_border = self.is_legacy or self._dtype(name) is DType.int32
        return f"{name}/array" if name in {*declared, predicted} and has_border else name

    def _dtype(self, name: str) -> DType | None:
        return next(
            (feature_of(f).dtype for f in self.model.description.output if f.name == name), None
        )

    def _output(self, feature: Feature) -> None:
        produced = self.probabilities if feature.kind == "probabilities" else feature.name
        inner = self.names.get(produced)
        if inner is None:
            raise ModelError(f"nothing computes the output {produced!r}")
        if feature.kind == "imageType":
            self.metadata[f"output {feature.name}"] = (
                f"pixels 0..255, {feature.color}, not yet rounded to whole numbers"
            )
        if inner == feature.name:
            return
        attributes: dict[str, Any] = {}
        if self.is_legacy and feature.kind != "imageType":
            attributes["mapping"] = "RANK5_ARRAY_MAPPING"
            if feature.dims and None not in feature.dims:
                attributes["shape"] = tuple(feature.dims)
                if any(f.dims is not None and None in f.dims for f in self.inputs):
                    attributes["isDefault"] = True
        if feature.dtype is DType.int32:
            attributes["dataType"] = "int32"
        self._add("array.output", (inner,), (feature.name,), attributes, f"output {feature.name}")

    def _add(
        self, kind: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        attributes: dict[str, Any], name: str,
    ) -> None:  # fmt: skip
        self.nodes.append(
            ForeignNode(kind, inputs, outputs, attributes, name, "", int(self.version))
        )


def _with_input(node: ForeignNode, name: str) -> ForeignNode:
    return ForeignNode(node.op_type, (name,), node.outputs, node.attributes, node.name)


def metadata_of(model: Any) -> dict[str, str]:
    """The model's own metadata: user-defined entries, description, author, license, version."""
    about = model.description.metadata
    entries = {str(k): str(v) for k, v in about.userDefined.items()}
    for key in ("shortDescription", "author", "license", "versionString"):
        if text := getattr(about, key):
            entries[key] = text
    return entries
