"""Any CoreML model -> foreign nodes; a pipeline is its stages, one after the other.

A feature that a stage declares is what an earlier stage, or the pipeline's caller, gave that name.
Every such crossing is a node, so that what the stage declares is held against what it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.coreml.blob import Blobs
from verax.frontends.coreml.features import Feature, allowed_sizes, feature_of
from verax.frontends.coreml.messages import refuse_unknown
from verax.frontends.coreml.network import KINDS, metadata_of, read_network
from verax.frontends.coreml.program import read_program
from verax.frontends.coreml.stages import STAGES, read_stage
from verax.ir.types import DType

PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")
SUPPORTED = (*KINDS, "mlProgram", *PIPELINES, *STAGES)
MAX_DEPTH = 8
"""Pipelines within pipelines."""


def read_model(
    model: Any, name: str, blobs: Blobs, defaults: dict[str, np.ndarray], depth: int = 0
) -> ForeignModel:
    """The content of a Model message of any supported kind.

    defaults: receives the values of inputs that the file states and a caller may replace.
    Raises `ModelError`, `UnsupportedError` naming the kind of an unsupported model.
    """
    kind = model.WhichOneof("Type")
    refuse_unknown(model, f"model {name!r}")
    if kind == "mlProgram":
        return read_program(model, name, blobs)
    if kind in KINDS:
        return read_network(model, name)
    if kind in STAGES:
        return read_stage(model, name, defaults)
    if kind not in PIPELINES:
        raise UnsupportedError(
            f"the model is a {kind}" if kind else "the model is of no kind",
            place=f"model {name!r}",
            next_step=f"supported are {', '.join(SUPPORTED)}",
        )
    if depth >= MAX_DEPTH:
        raise ModelError(f"pipelines are nested more than {MAX_DEPTH} deep")
    holder = getattr(model, kind)
    refuse_unknown(holder, f"model {name!r}")
    content = holder if kind == "pipeline" else holder.pipeline
    refuse_unknown(content, f"model {name!r}")
    if not len(content.models):
        raise ModelError("the pipeline has no stages", place=f"model {name!r}")
    stated_names = [str(n) for n in content.names]
    names = (
        stated_names
        if len(set(stated_names)) == len(content.models)
        else map(str, range(len(content.models)))
    )
    stages = []
    for title, message in zip(names, content.models):
        stage = f"stage {title}"
        stages.append((stage, message, read_model(message, stage, blobs, defaults, depth + 1)))
    joint = _Joint(
        model, name, defaults, [o.name for _, _, stage_model in stages for o in stage_model.outputs]
    )
    for stage, message, stage_model in stages:
        joint.add(stage, message, stage_model)
    return joint.foreign_model()


class _Joint:
    """The stages so far. features: what has been given or made; each is the value of its name.

    defaults: values of inputs that the file states. made: features that the stages make.
    """

    def __init__(
        self, model: Any, name: str, defaults: Mapping[str, np.ndarray], output_names: list[str]
    ) -> None:
        self.model, self.name, self.defaults = model, name, defaults
        self.features = {f.name: feature_of(f) for f in model.description.input}
        if len(self.features) != len(model.description.input):
            raise ModelError("an input of the pipeline is named twice")
        self.inputs = {name: f.value() for name, f in self.features.items()}
        self.nodes: list[ForeignNode] = []
        self.constants: dict[str, np.ndarray] = {}
        self.declared: dict[str, ForeignValue] = {}
        self.metadata: dict[str, str] = {}
        self.used_names = {*self.features, *output_names}

    def add(self, stage: str, message: Any, stage_model: ForeignModel) -> None:
        """Append a stage, with its values renamed where another stage has the name."""
        crossing = {f.name: feature_of(f) for f in message.description.input}
        names = {o.name: o.name for o in stage_model.outputs}
        for name in names:
            if name in self.features:
                raise ModelError(f"the feature {name!r} is made twice", place=stage)
        for value in stage_model.inputs:
            names[value.name] = self._cross(stage, value, crossing.get(value.name))
        produced = dict.fromkeys(o for node in stage_model.nodes for o in node.outputs if o)
        for name in (*stage_model.constants, *produced):
            names.setdefault(name, self._free(stage, name))
        for node in stage_model.nodes:
            self.nodes.append(
                ForeignNode(
                    node.op_type,
                    tuple(names[i] if i else "" for i in node.inputs),
                    tuple(names[o] if o else "" for o in node.outputs),
                    node.attributes,
                    f"{stage}/{node.name}" if node.name else node.name,
                    node.domain,
                    node.version,
                    node.depth,
                )
            )
        self.constants |= {names[k]: v for k, v in stage_model.constants.items()}
        for old, value in stage_model.declared.items():
            if old in names:
                new = names[old]
                self.declared[new] = ForeignValue(new, value.dtype, value.dims, value.kind)
        for key, text in stage_model.metadata.items():
            self.metadata.setdefault(key, text)
        images = {
            f.name for f in message.description.output if f.type.WhichOneof("Type") == "imageType"
        }
        for value in stage_model.outputs:
            kind = "imageType" if value.name in images else value.kind
            self.features[value.name] = Feature(value.name, kind, None, value.dtype)

    def _free(self, stage: str, name: str) -> str:
        while name in self.used_names:
            name = f"{stage}/{name}"
        self.used_names.add(name)
        return name

    def _cross(self, stage: str, expected: ForeignValue, feature: Feature | None) -> str:
        """The value that a stage sees as its input."""
        name, location = expected.name, f"{stage}, input {expected.name!r}"
        if name not in self.features:
            if name not in self.defaults:
                raise ModelError(f"no stage before makes the feature {name!r}", place=location)
            result = self._free(stage, name)
            self.constants[result] = self.defaults[name]
            return result
        source, is_input = self.features[name], name in self.inputs
        color = feature.color if feature is not None else ""
        if color != source.color or (source.kind == "imageType" and not is_input):
            raise UnsupportedError(
                f"the feature {name!r} is {_words(source)} and becomes {_words(feature)}",
                place=location,
                next_step="declare it the same way on both sides of the stage's border",
            )
        is_same = (source.dtype, source.dims) == (expected.dtype, expected.dims)
        if is_input and (is_same or source.kind == "doubleType"):
            return name
        result = self._free(stage, name)
        self.nodes.append(ForeignNode("copy", (name,), (result,), {}, f"{stage}/{name}"))
        self.declared[result] = ForeignValue(result, expected.dtype, expected.dims)
        return result

    def foreign_model(self) -> ForeignModel:
        """All stages as one model with the pipeline's own inputs and outputs."""
        about, outputs = self.model.description, []
        for message in about.output:
            feature, name = feature_of(message), message.name
            if name == about.predictedFeatureName and feature.kind in ("stringType", "int64Type"):
                continue
            is_scores = (
                feature.kind == "dictionaryType" and name == about.predictedProbabilitiesName
            )
            if not is_scores and feature.kind not in ("multiArrayType", "imageType"):
                raise UnsupportedError(
                    f"the output is {feature.kind}, not a tensor", place=f"output {name!r}"
                )
            if name not in self.features:
                raise ModelError(f"no stage makes the output {name!r}")
            if not is_scores:
                self._declare(feature)
            outputs.append(ForeignValue(name, DType.float32, None, feature.kind))
        if not outputs:
            raise ModelError("the pipeline has no outputs")
        inputs = (
            ForeignValue(k, DType.float32, ()) if k in self.defaults else v
            for k, v in self.inputs.items()
        )
        return ForeignModel(
            name=self.name,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            nodes=tuple(self.nodes),
            constants=self.constants,
            declared=self.declared,
            versions={"specification": int(self.model.specificationVersion)},
            metadata={**self.metadata, **metadata_of(self.model)},
            sizes=allowed_sizes(self.model.description.input),
        )

    def _declare(self, feature: Feature) -> None:
        """Compare the pipeline's declaration of an output with its stage's."""
        name = feature.name
        expected = ForeignValue(name, feature.dtype, feature.dims)
        declared = self.declared.setdefault(name, expected)
        if declared.dtype not in (None, expected.dtype) or not _agree(declared.dims, expected.dims):
            raise ModelError(
                f"the pipeline declares {name!r} as {expected.dtype} {expected.dims}, its stage as "
                f"{declared.dtype} {declared.dims}"
            )


def _agree(a: tuple[int | str | None, ...] | None, b: tuple[int | str | None, ...] | None) -> bool:
    """Whether two declared shapes may be one."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        not (isinstance(n, int) and isinstance(m, int)) or n == m for n, m in zip(a, b)
    )


def _words(feature: Feature | None) -> str:
    if feature is None or feature.kind != "imageType":
        return "an array"
    return f"an image ({feature.color})" if feature.color else "an image"
