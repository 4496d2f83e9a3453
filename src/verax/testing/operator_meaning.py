"""Operators as meanings: `"Conv(strides=(2, 2))"` by name, and the network of one node that an
operator and its inputs make."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

import verax.ops  # noqa: F401 (registers the operators)
from verax.base.arrays import as_array
from verax.base.errors import GraphError, UsageError
from verax.base.tensors import is_array
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Operator
from verax.ir.text import eval_literal
from verax.ir.types import HALVES, NARROW_FLOATS, DType, TensorType
from verax.ops.pointwise.cast import Cast

EXAMPLE = '"Conv(strides=(2, 2))"'
SUMMED_BYTES = ("MatMul", "Gemm", "Einsum", "ReduceSum", "CumSum")
"""Operators whose int8 inputs are summed in int32."""


def parse_operator(text: str) -> Operator:
    """The operator that a text names, with its attributes as Python literals.

    Raises `UsageError` that names what is wrong in the text and what it is near to.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise _unreadable(text, "is no call") from error
    if isinstance(call, ast.Name):
        call = ast.Call(call, [], [])
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _unreadable(text, "is no call of an operator")
    name = call.func.id
    if name not in REGISTRY:
        raise UsageError(
            f"there is no operator {name!r}" + _near(name, REGISTRY),
            place=text,
            next_step="`verax ops` lists them; a model's path, or a function, is a meaning too",
        )
    operator = REGISTRY[name]
    fields = [f.name for f in dataclasses.fields(operator)]
    listed = f"its attributes are {', '.join(fields)}" if fields else "it has no attributes"
    if call.args:
        raise UsageError(
            f"{name} takes attributes by name, and one is given by position",
            place=text,
            next_step=listed,
        )
    attributes: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in fields:
            attribute = keyword.arg or "**"
            raise UsageError(
                f"{name} has no attribute {attribute!r}" + _near(attribute, fields),
                place=text,
                next_step=listed,
            )
        try:
            attributes[keyword.arg] = eval_literal(ast.unparse(keyword.value))
        except (ValueError, AssertionError, SyntaxError, TypeError) as error:
            raise UsageError(
                f"{ast.unparse(keyword.value)!r} is no literal",
                place=f"{keyword.arg} in {text}",
                next_step="give numbers, texts, True, False, None, or tuples of them",
            ) from error
    types = get_type_hints(operator)
    for attribute, value in attributes.items():
        try:
            attributes[attribute] = _as_type(value, types[attribute])
        except ValueError as error:
            raise UsageError(
                f"{attribute} of {name} is {_in_words(types[attribute])}, not {value!r}",
                place=text,
                next_step=f"`verax ops {name}` shows its attributes and their defaults",
            ) from error
    try:
        return operator(**attributes)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} does not take these attributes: {error}", place=text) from error


def _as_type(value: Any, hint: Any) -> Any:
    """A literal as an attribute's declared type. hint: a class, a tuple type or a union of them.

    Lists are tuples, 0 and 1 are truth values, whole numbers are floats, and a type of elements is
    given by its name. Raises `ValueError` for a literal that is of another type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for option in arguments:
            with suppress(ValueError):
                return _as_type(value, option)
        raise ValueError
    if origin is tuple:
        if not isinstance(value, tuple | list):
            raise ValueError
        if get_origin(arguments[0]) is tuple and all(type(v) is int for v in value):
            return tuple(value)  # pads in a row: the operator says what they would be as pairs
        of = (arguments[0],) * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_as_type(v, h) for v, h in zip(value, of, strict=True))
    if hint is bool and value in (0, 1):
        return bool(value)
    if hint is DType and isinstance(value, str):
        return DType(value)
    if isinstance(value, bool) or not isinstance(value, (int, float) if hint is float else hint):
        raise ValueError
    return value


def _in_words(hint: Any) -> str:
    """An attribute's declared type for the reader: "a tuple of ints"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(a) for a in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"a tuple of {_plural(arguments[0])}"
    if origin is tuple:
        return f"{len(arguments)} {_plural(arguments[0])}"
    if hint is DType:
        return f"the name of a type ({', '.join(d.value for d in DType)})"
    return "None" if hint is type(None) else f"one {hint.__name__}"


def _plural(hint: Any) -> str:
    return "pairs" if get_origin(hint) is tuple else f"{hint.__name__}s"


def _unreadable(text: str, problem: str) -> UsageError:
    return UsageError(
        f"the meaning {text!r} {problem}",
        next_step=f"give an operator such as {EXAMPLE}, or the path of a model's file",
    )


def _near(name: str, names: Any) -> str:
    lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    return f"; is {lower[near[0]]!r} meant?" if near else ""


@dataclass(frozen=True)
class OperatorCase:
    """An operator on inputs, as a network of one node and casts around it.

    inputs: all of them by name, as they were given; None for one that is left out. feeds: arrays
    of those that the graph takes; the others are constants in it, as the type rule needs them.
    """

    op: Operator
    graph: Graph
    inputs: Mapping[str, Any]
    feeds: Mapping[str, np.ndarray]


def input_names(op: Operator, count: int) -> list[str]:
    """Names of an operator's inputs: those of its reference, numbered where it takes any number."""
    parameters = list(inspect.signature(op.reference).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    names += [f"input_{i}" for i in range(len(names), count)]
    return names[:count]


def named_inputs(op: Operator, inputs: Any) -> dict[str, Any]:
    """Inputs in the operator's order, by name. inputs: an array, several, or a mapping whose names
    are the operator's or whose order is."""
    if is_array(inputs):
        inputs = (inputs,)
    if isinstance(inputs, Mapping):
        own_names = input_names(op, op.max_inputs or len(inputs))
        if set(inputs) <= set(own_names):
            last = max(own_names.index(name) for name in inputs) if inputs else -1
            return {name: inputs.get(name) for name in own_names[: last + 1]}
        return dict(inputs)
    if not isinstance(inputs, Sequence):
        raise UsageError(
            f"inputs of {op.kind} are an array, several, or arrays by name, and a "
            f"{type(inputs).__name__} is given"
        )
    return dict(zip(input_names(op, len(inputs)), inputs))


def counted_inputs(op: Operator, inputs: Any) -> dict[str, Any]:
    """As `named_inputs`. Raises `UsageError` for too few or too many."""
    named = named_inputs(op, inputs)
    lowest, highest = op.min_inputs, op.max_inputs
    count = sum(v is not None for v in named.values())
    if count < lowest or (highest is not None and len(named) > highest):
        upper = "or more" if highest is None else f"to {highest}" if highest > lowest else ""
        raise UsageError(
            f"{len(named)} inputs are given, {op.kind} takes {lowest} {upper}".rstrip(),
            place=str(op),
            next_step=f"they are {', '.join(input_names(op, highest or lowest))}",
        )
    return named


def operator_case(op: Operator, inputs: Any, answer: np.dtype | None) -> OperatorCase:
    """The network of an operator on inputs whose answer has a given type, if it is known.

    Floats of 8 bits are widened, which changes no number; so are floats of 16 bits where the answer
    is float32, and bytes where it is int32. Raises `GraphError` when the inputs do not fit.
    """
    named = counted_inputs(op, inputs)
    arrays = {
        n: None if v is None else np.asarray(as_array(v, f"input {n!r}")) for n, v in named.items()
    }
    integers = [n for n, a in arrays.items() if a is not None and a.dtype.kind in "iu"]
    try:
        graph = _graph(op, arrays, answer, ())
        if all(graph.types[v].is_static for v in graph.outputs):
            return OperatorCase(op, graph, named, _feeds(arrays, ()))
    except GraphError:
        if not integers:
            raise
    # Shapes, axes and the like have to be known to the type rule.
    graph = _graph(op, arrays, answer, integers)
    return OperatorCase(op, graph, named, _feeds(arrays, integers))


def _feeds(arrays: Mapping[str, Any], constants: Sequence[str]) -> dict[str, np.ndarray]:
    return {n: a for n, a in arrays.items() if a is not None and n not in constants}


def _graph(
    op: Operator, arrays: Mapping[str, Any], answer: np.dtype | None, constants: Sequence[str]
) -> Graph:
    builder = Builder(op.kind)
    kinds = [DType.of(a) for a in arrays.values() if a is not None]
    floats = [k for k in kinds if k.is_float]
    wide = None if answer is None else DType.of(answer)
    narrow = any(k in NARROW_FLOATS for k in floats) and not op.takes_narrow
    widened = narrow or (wide is DType.float32 and any(k in HALVES for k in floats))
    sums_bytes = wide is DType.int32 and op.kind in SUMMED_BYTES
    values: list[str | None] = []
    for name, array in arrays.items():
        if array is None:
            values.append(None)
            continue
        if name in constants:
            values.append(builder.constant(array, name))
            continue
        value = builder.input(name, TensorType.of(array))
        kind = DType.of(array)
        if widened and kind in HALVES | NARROW_FLOATS:
            value = builder.add(Cast(to=DType.float32), [value], [f"{name}_in_float32"])
        elif sums_bytes and kind in (DType.int8, DType.uint8):
            value = builder.add(Cast(to=DType.int32), [value], [f"{name}_in_int32"])
        values.append(value)
    outputs = list(builder.add_all(op, values, name=op.kind))
    if widened and wide is not None and wide.is_float and wide is not DType.float32:
        outputs[0] = builder.add(Cast(to=wide), [outputs[0]], name="stored")
    return builder.graph(outputs)
