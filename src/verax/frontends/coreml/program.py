"""A CoreML ML program -> foreign nodes of domain "mil".

Operations take named arguments. Constants become attributes of the operations that use them;
values that are computed become inputs, and the attribute "inputs" names their arguments in order.
`cond` and `while_loop` hold blocks, which read what lies outside of them by its name; they become
branches and loops as every format has them (`common.control`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import Branch, While
from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue, Subgraph
from verax.frontends.coreml.blob import Blobs
from verax.frontends.coreml.compressed_weights import COMPRESSED, decompressed
from verax.frontends.coreml.features import allowed_sizes
from verax.frontends.coreml.messages import enum_name, refuse_unknown
from verax.frontends.coreml.network import metadata_of
from verax.frontends.coreml.values import constant_of, is_small, value_of

CONTROL = {"cond": "pred", "while_loop": "loop_vars"}
"""Operations of two blocks, with their only argument."""


def read_program(model: Any, name: str, blobs: Blobs) -> ForeignModel:
    """The content of a Model message that holds an ML program; its function is "main".

    Raises `ModelError`, `UnsupportedError`.
    """
    functions = model.mlProgram.functions
    function_name = model.description.defaultFunctionName or "main"
    if function_name not in functions:
        raise ModelError(
            f"the program has no function {function_name!r}, only {sorted(functions)[:5]}"
        )
    function = functions[function_name]
    if function.opset not in function.block_specializations:
        raise ModelError(f"the function has no block for {function.opset!r}")
    digits = function.opset.removeprefix("CoreML")
    if not digits.isdecimal() or len(digits) > 2:
        raise UnsupportedError(f"operations of {function.opset!r}, which is no CoreML version")
    block = function.block_specializations[function.opset]
    return _ProgramReader(model, block, blobs, int(digits)).read(name, function)


class _ProgramReader:
    """version: of the operation set, 5 for CoreML5 (iOS 15). depth: of the block that is read."""

    def __init__(self, model: Any, block: Any, blobs: Blobs, version: int) -> None:
        self.model, self.block, self.blobs = model, block, blobs
        self.constants_by_name: dict[str, Any] = {}
        self.small: set[str] = set()
        self.constants: dict[str, np.ndarray] = {}
        self.declared: dict[str, ForeignValue] = {}
        self.defined: set[str] = set()
        self.nodes: list[ForeignNode] = []
        self.metadata = metadata_of(model)
        self.outputs = [str(o) for o in block.outputs]
        self.version, self.depth = version, 0

    def read(self, name: str, function: Any) -> ForeignModel:
        inputs = [value_of(v) for v in function.inputs]
        for value in inputs:
            self._define(value.name, "the program's inputs")
        declared = {f.name: f.type for f in self.model.description.input}
        for value in inputs:
            self._note_image("input", value.name, declared.get(value.name), "")
        for feature in self.model.description.output:
            rounding = ", not yet rounded to whole numbers"
            self._note_image("output", feature.name, feature.type, rounding)
        for operation in self.block.operations:
            self._operation(operation)
        outputs = [self.declared.get(o, ForeignValue(o, None, None)) for o in self.outputs]
        for output in outputs:
            if output.name in self.constants_by_name:
                self.constants[output.name] = np.asarray(self.constants_by_name[output.name])
            elif output.name not in self.defined:
                raise ModelError(f"nothing computes the output {output.name!r}")
        if not outputs:
            raise ModelError("the program has no outputs")
        return ForeignModel(
            name=name,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            nodes=tuple(self.nodes),
            constants=self.constants,
            declared=self.declared,
            versions={"specification": int(self.model.specificationVersion)},
            metadata=self.metadata,
            sizes=allowed_sizes(self.model.description.input),
        )

    def _note_image(self, side: str, name: str, kind: Any, more: str) -> None:
        """Say of an image in what order its channels are, and what its numbers mean."""
        if kind is not None and kind.WhichOneof("Type") == "imageType":
            color = enum_name(
                kind.imageType.DESCRIPTOR.fields_by_name["colorSpace"],
                kind.imageType.colorSpace,
                f"{side} {name!r}",
            )
            self.metadata[f"{side} {name}"] = f"pixels 0..255, {color}{more}"

    def _define(self, name: str, location: str) -> None:
        if not name or name in self.defined:
            raise ModelError(f"the value {name!r} is unnamed or defined twice", place=location)
        self.defined.add(name)

    def _operation(self, operation: Any) -> None:
        first = operation.outputs[0].name if len(operation.outputs) else ""
        location = f"operation {first!r} ({operation.type})"
        refuse_unknown(operation, location)
        if len(operation.blocks) and operation.type not in CONTROL:
            raise UnsupportedError(f"{operation.type} holds blocks (control flow)", place=location)
        for output in operation.outputs:
            self._define(output.name, location)
        if operation.type == "const":
            if "val" not in operation.attributes:
                raise ModelError("a constant without a value", place=location)
            self.constants_by_name[first] = constant_of(
                operation.attributes["val"], self.blobs, location
            )
            if is_small(operation.attributes["val"]):
                self.small.add(str(first))
            return
        if operation.type in CONTROL:
            self._control(operation, first, location)
            return
        inputs, attributes = self._arguments(operation, location)
        if operation.type in COMPRESSED:
            self._decompress(operation, attributes, location)
            return
        if operation.type == "classify":
            self._classify(operation, inputs, attributes, location)
            return
        self._declare(operation)
        outputs = tuple(str(o.name) for o in operation.outputs)
        self._add(operation.type, tuple(inputs), outputs, attributes, first)

    def _declare(self, operation: Any) -> None:
        """Note the types of an operation's results; in a block they are as its sizes make them."""
        if self.depth == 0:
            for output in operation.outputs:
                self.declared[output.name] = value_of(output)

    def _control(self, operation: Any, name: str, location: str) -> None:
        """A branch or a loop, with its blocks as graphs.

        Raises `ModelError` where its blocks or arguments are not those of its kind.
        """
        argument = CONTROL[operation.type]
        if set(operation.inputs) != {argument} or len(operation.blocks) != 2:
            raise ModelError(
                f"it has the arguments {sorted(operation.inputs)} and {len(operation.blocks)} "
                f"blocks, and should have {argument} and 2",
                place=location,
            )
        if more := sorted({*operation.attributes} - {"name"}):
            raise UnsupportedError(f"its attributes {more} are not known", place=location)
        bindings = operation.inputs[argument].arguments
        inputs = tuple(self._value(self._binding(b, location)) for b in bindings)
        # The results are defined by now, but a block may not read them.
        output_names = {str(o.name) for o in operation.outputs}
        first, second = (self._block(b, output_names, location) for b in operation.blocks)
        outputs = tuple(str(o.name) for o in operation.outputs)
        self._declare(operation)
        if operation.type == "while_loop":
            self.nodes.append(
                While("while_loop", inputs, outputs, {}, name, "mil", test=first, body=second)
            )
            return
        if len(inputs) != 1:
            raise ModelError(f"it has {len(inputs)} conditions", place=location)
        self.nodes.append(
            Branch("cond", inputs, outputs, {}, name, "mil", then=first, otherwise=second)
        )

    def _block(self, block: Any, hidden: set[str], location: str) -> Subgraph:
        """A block as a graph; what it defines is known to nobody else. hidden: values that are
        defined behind it."""
        refuse_unknown(block, location)
        outside = self.constants_by_name, self.small, self.defined, self.nodes
        self.constants_by_name, self.small = dict(self.constants_by_name), set(self.small)
        self.defined, self.nodes = self.defined - hidden, []
        self.depth += 1
        try:
            inputs = tuple(str(v.name) for v in block.inputs)
            for name in inputs:
                self._define(name, location)
            for operation in block.operations:
                self._operation(operation)
            outputs = tuple(self._value(self._named(str(o), location)) for o in block.outputs)
            return Subgraph(inputs, outputs, {}, tuple(self.nodes))
        finally:
            self.constants_by_name, self.small, self.defined, self.nodes = outside
            self.defined.update(self.constants)
            self.depth -= 1

    def _decompress(self, operation: Any, attributes: Mapping[str, Any], location: str) -> None:
        """The arrays of a compressed constant, which must be what the operation declares."""
        arrays = decompressed(operation.type, attributes, location)
        if len(arrays) != len(operation.outputs):
            raise ModelError(f"{len(operation.outputs)} outputs", place=location)
        for output, array in zip(operation.outputs, arrays):
            declared = value_of(output)
            if is_small(output):
                self.small.add(str(output.name))
            elif declared.dtype is not None and declared.dtype.numpy != array.dtype:
                raise ModelError(
                    f"{array.dtype} weights declared as {declared.dtype}", place=location
                )
            if declared.dims is not None and declared.dims != array.shape:
                raise ModelError(
                    f"weights {array.shape} declared as {declared.dims}", place=location
                )
            self.constants_by_name[str(output.name)] = array

    def _arguments(self, operation: Any, location: str) -> tuple[list[str], dict[str, Any]]:
        """Computed values in the order of their arguments' names, and everything that is known."""
        inputs: list[str] = []
        bound: list[str] = []
        attributes: dict[str, Any] = {}
        for argument in sorted(operation.inputs):
            bindings = operation.inputs[argument].arguments
            values = [self._binding(b, location) for b in bindings]
            if operation.type not in COMPRESSED and any(map(self._is_small, bindings)):
                raise UnsupportedError(
                    f"{argument} has fewer than 8 bits per element, and {operation.type} is no "
                    "compressed constant",
                    place=location,
                )
            if len(values) == 1 and not isinstance(values[0], _Computed):
                attributes[argument] = values[0]
                continue
            if (operation.type, argument) == ("make_list", "elem_shape"):
                attributes[argument] = tuple(map(str, values))  # sizes, and names of sizes
                continue
            for value in values:
                bound.append(argument)
                inputs.append(self._value(value))
        for key in operation.attributes:
            if key != "name":
                attributes[key] = constant_of(operation.attributes[key], self.blobs, location)
        if bound:
            attributes["inputs"] = tuple(bound)
        return inputs, attributes

    def _binding(self, binding: Any, location: str) -> Any:
        if binding.WhichOneof("binding") == "value":
            return constant_of(binding.value, self.blobs, location)
        return self._named(str(binding.name), location)

    def _named(self, name: str, location: str) -> Any:
        if name in self.constants_by_name:
            return self.constants_by_name[name]
        if name not in self.defined:
            raise ModelError(
                f"{name!r} is read before anything defines it",
                place=location,
                next_step="the operations are not sorted, form a cycle, or the file is damaged",
            )
        return _Computed(name)

    def _is_small(self, binding: Any) -> bool:
        if binding.WhichOneof("binding") == "value":
            return is_small(binding.value)
        return str(binding.name) in self.small

    def _value(self, value: Any) -> str:
        """The name of a computed value, or of a constant that becomes one of the graph."""
        return value.name if isinstance(value, _Computed) else self._add_constant(value)

    def _add_constant(self, value: Any) -> str:
        """Add a constant to the graph; returns its name."""
        name = f"constant.{len(self.constants)}"
        while name in self.defined:
            name += "_"
        self._define(name, "constants")
        self.constants[name] = np.asarray(value)
        return name

    def _classify(
        self, operation: Any, inputs: list[str], attributes: Mapping[str, Any], location: str
    ) -> None:
        """The probabilities go out under the dictionary's name; the labels become metadata."""
        bound = attributes.get("inputs", ())
        if bound != ("probabilities",) or len(operation.outputs) != 2:
            raise ModelError("the classifier has no computed probabilities", place=location)
        labels = attributes.get("classes", ())
        listed = labels if isinstance(labels, tuple) else np.asarray(labels).ravel().tolist()
        self.metadata["labels"] = "\n".join(map(str, listed))
        label, scores = (str(o.name) for o in operation.outputs)
        self.outputs = [o for o in self.outputs if o != label]
        self._add("identity", (inputs[0],), (scores,), {"inputs": ("x",)}, scores)

    def _add(
        self, kind: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        attributes: dict[str, Any], name: str,
    ) -> None:  # fmt: skip
        self.nodes.append(ForeignNode(kind, inputs, outputs, attributes, name, "mil", self.version))


class _Computed:
    """A value that running computes."""

    def __init__(self, name: str) -> None:
        self.name = name
