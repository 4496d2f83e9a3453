"""Small ML programs for the tests, made of the message classes themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.frontends.coreml.messages import model_messages

NUMBERS = {"bool": 1, "str": 2, "float16": 10, "float32": 11, "int8": 21, "int16": 22, "int32": 23,
           "uint8": 31, "uint16": 32, "uint1": 37, "uint2": 36, "uint3": 39, "uint4": 35,
           "int4": 25, "uint6": 38}  # fmt: skip
FIELDS = {"bool": "bools", "str": "strings", "float32": "floats", "int32": "ints"}


def type_(message: Any, dtype: str, shape: Sequence[int] | None) -> None:
    """Fill a ValueType; a shape of None says nothing about the axes."""
    tensor = message.tensorType
    tensor.dataType = NUMBERS[dtype]
    tensor.rank = -1 if shape is None else len(shape)
    for size in shape or ():
        tensor.dimensions.add().constant.size = size


def value(message: Any, content: Any, dtype: str = "", shape: Sequence[int] | None = None) -> None:
    """Fill a Value with an array, number or text; `dtype` and `shape` where bytes do not say."""
    if isinstance(content, bytes):
        type_(message.type, dtype, shape)
        message.immediateValue.tensor.bytes.values = content
        return
    array = np.asarray(content)
    kind = "str" if array.dtype.kind == "U" else str(array.dtype)
    kind = {"float64": "float32", "int64": "int32"}.get(kind, kind)
    type_(message.type, kind, array.shape)
    tensor = message.immediateValue.tensor
    if kind in FIELDS:
        getattr(tensor, FIELDS[kind]).values.extend(array.ravel().tolist())
    else:
        tensor.bytes.values = array.astype(kind).tobytes()


@dataclass(frozen=True)
class Raw:
    """A constant of an element type that NumPy lacks, as its bytes."""

    data: bytes
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One operation: names of inputs as texts that begin with "%", all else is constant."""

    kind: str
    arguments: Mapping[str, Any]
    outputs: Mapping[str, str] = field(default_factory=lambda: {"y": "float32"})


def program(
    operations: Sequence[Operation], inputs: Mapping[str, tuple[str, Sequence[int]]], opset: int = 5
) -> Any:
    """A Model message whose outputs are those of the last operation."""
    model = model_messages().Model()
    model.specificationVersion = opset + 1
    model.description.SetInParent()
    function = model.mlProgram.functions["main"]
    function.opset = f"CoreML{opset}"
    block = function.block_specializations[function.opset]
    for name, (dtype, shape) in inputs.items():
        given = function.inputs.add()
        given.name = name
        type_(given.type, dtype, shape)
        model.description.input.add().name = name
    for i, operation in enumerate(operations):
        made = block.operations.add()
        made.type = operation.kind
        for name, content in operation.arguments.items():
            for item in content if isinstance(content, list) else [content]:
                bind(block, made, name, item, f"const_{i}")
        for name, dtype in operation.outputs.items():
            output = made.outputs.add()
            output.name = name
            type_(output.type, dtype, None)
    block.outputs.extend(operations[-1].outputs)
    return model


def bind(block: Any, made: Any, name: str, item: Any, prefix: str) -> None:
    """One argument: a value by name, or a constant operation put before this one."""
    binding = made.inputs[name].arguments.add()
    if isinstance(item, str) and item.startswith("%"):
        binding.name = item[1:]
    elif isinstance(item, Raw):
        value(binding.value, item.data, item.dtype, item.shape)
    else:
        value(binding.value, item)


@dataclass(frozen=True)
class Case:
    """One operation on inputs x0, x1, ..., and its meaning in NumPy (float64).

    arrays: the inputs themselves, or shapes to draw them for. opset: of the program.
    """

    kind: str
    arrays: Sequence[Any]
    arguments: Mapping[str, Any]
    meaning: Callable[..., Any]
    label: str = ""
    outputs: Sequence[str] = ("float32",)
    opset: int = 5

    def inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(11)
        return {
            f"x{i}": rng.uniform(-2, 2, a).astype(np.float32) if isinstance(a, tuple) else a
            for i, a in enumerate(self.arrays)
        }

    def model(self, **changes: Any) -> Any:
        """The program; `changes` replace arguments."""
        inputs = {n: (str(a.dtype), a.shape) for n, a in self.inputs().items()}
        made = {f"y{i}": dtype for i, dtype in enumerate(self.outputs)}
        operation = Operation(self.kind, {**self.arguments, **changes}, made)
        return program([operation], inputs, self.opset)
