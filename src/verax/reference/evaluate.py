"""The evaluator: walks a graph once, node by node, with NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from verax.base.errors import InputError, VeraxError
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.printer import bounds_text
from verax.ir.types import DType, TensorType
from verax.reference.sizes import require_memory


def evaluate(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    *,
    work: np.dtype | type = np.float64,
    keep: str | Sequence[str] = "outputs",
) -> dict[str, np.ndarray]:
    """Values of `graph` on `inputs`, by meaning.

    work: dtype that carries floating-point tensors (float64, float32, or object for Fractions).
    keep: "outputs", "all", or a sequence of value names. Values are freed after their last use.
    State that is not among the inputs has its initial value; its new value is one of the outputs.
    Raises `InputError` when inputs do not fit the declared types.
    """
    return _evaluate_nodes(graph, inputs, np.dtype(work), keep, promised_bits=False)


def promised(
    graph: Graph, inputs: Mapping[str, np.ndarray], *, keep: str | Sequence[str] = "outputs"
) -> dict[str, np.ndarray]:
    """Values in their declared dtypes with the bits that levels O0 and O1 promise (slow)."""
    return _evaluate_nodes(graph, inputs, np.dtype(np.float32), keep, promised_bits=True)


def _evaluate_nodes(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    work: np.dtype,
    keep: str | Sequence[str],
    promised_bits: bool,
) -> dict[str, np.ndarray]:
    bind_symbols(graph, inputs)
    inputs = {**graph.initial, **inputs}
    values: dict[str, Any] = {}
    for name, array in [
        *((n, np.asarray(inputs[n])) for n in graph.inputs),
        *graph.constants.items(),
    ]:
        declared = graph.types[name].dtype
        values[name] = array if promised_bits else to_work(array, declared, work)
    retained = set(graph.outputs) if isinstance(keep, str) else set(keep)
    last = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs if v is not None}
    for i, node in enumerate(graph.nodes):
        arrays = [None if v is None else values[v] for v in node.inputs]
        types = tuple(
            None if a is None or v is None else TensorType(graph.types[v].dtype, a.shape)
            for v, a in zip(node.inputs, arrays)
        )
        results = evaluate_node(
            node, arrays, types, graph.output_types(node), work, promised_bits=promised_bits
        )
        values.update(zip(node.outputs, results, strict=True))
        if keep != "all":
            for v in {*node.inputs, *node.outputs} - retained:
                if v is not None and last.get(v, -1) <= i:
                    values.pop(v, None)
    names = graph.types if keep == "all" else graph.outputs if isinstance(keep, str) else keep
    return {name: values[name] for name in names}


def evaluate_node(
    node: Node,
    arrays: Sequence[Any],
    types: tuple[TensorType | None, ...],
    outputs: tuple[TensorType, ...],
    work: np.dtype | type = np.float64,
    *,
    promised_bits: bool = False,
) -> tuple[np.ndarray, ...]:
    """Outputs of one node on arrays that are already in the working dtype.

    Raises `InputError`, before anything is allocated, for outputs beyond the limit of memory.
    """
    ev = Evaluation(types, outputs, np.dtype(work))
    require_memory(node, types, arrays, outputs, None if promised_bits else ev.work)
    try:
        with np.errstate(all="ignore"):
            if promised_bits:
                results = as_tuple(node.op.canonical(ev, *arrays))
                dtypes = [t.dtype.numpy for t in outputs]
            else:
                results = as_tuple(node.op.reference(ev, *arrays))
                dtypes = [ev.dtype(t.dtype) for t in outputs]
    except VeraxError as error:
        if error.place:
            raise
        raise type(error)(error.cause, place=node.place, next_step=error.next_step) from error
    except MemoryError as error:
        raise InputError(
            f"there is not enough memory for this node ({error})",
            place=node.place,
            next_step="run it on smaller inputs, or where more memory is free",
        ) from error
    return tuple(np.asarray(r).astype(d, copy=False) for r, d in zip(results, dtypes, strict=True))


def to_work(array: np.ndarray, declared: DType, work: np.dtype) -> np.ndarray:
    """A declared array in the dtype that carries it."""
    if not declared.is_float:
        return array.astype(declared.counted) if declared.is_narrow else array
    if work.kind == "O":
        flat = [Fraction(float(v)) for v in array.ravel()]
        return np.array(flat, dtype=object).reshape(array.shape)
    return array.astype(work, copy=False)


def _taken_by(graph: Graph) -> str:
    return f"it takes {', '.join(f'{v}: {graph.types[v]}' for v in graph.inputs)}"


def bind_symbols(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Check inputs against the declared types; returns the sizes of symbols.

    State may be left out. Raises `InputError` naming the input that is missing, unknown or of
    another type, or has a size outside of the bounds stated of its symbol.
    """
    inputs = {**graph.initial, **inputs}
    input_names = frozenset(graph.inputs)
    for name in inputs:
        if name not in input_names:
            raise InputError(f"the model has no input {name!r}", next_step=_taken_by(graph))
    sizes: dict[str, int] = {}
    computed: list[tuple[str, int, int]] = []  # sizes that follow from those of symbols
    first: dict[str, str] = {}
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"the input {name!r} is missing", next_step=_taken_by(graph))
        array, declared = inputs[name], graph.types[name]
        if not isinstance(getattr(array, "dtype", None), np.dtype):
            array = np.asarray(array)  # what lies on a device stays there
        if array.dtype != declared.dtype.numpy:
            raise InputError(
                f"the input is {array.dtype}, the model takes {declared.dtype}",
                place=f"input {name!r}",
                next_step=f"convert it with .astype({declared.dtype})",
            )
        if array.ndim != declared.rank:
            raise InputError(
                f"the input has the shape {array.shape}, the model takes {declared}",
                place=f"input {name!r}",
            )
        for axis, (size, dim) in enumerate(zip(array.shape, declared.dims)):
            if dim == size:
                continue
            names = TensorType(declared.dtype, (dim,)).symbols()
            symbol = str(dim)
            if symbol in names:
                bound_size = sizes.setdefault(symbol, size)
                axis_name = first.setdefault(symbol, f"axis {axis} of {name!r}")
                _require_within(graph, symbol, size, name, axis)
                if bound_size != size:
                    expected_size = f" = {bound_size}, the size of {axis_name}"
                    raise _wrong_size(graph, name, axis, array.shape, expected_size)
            else:
                computed.append((name, axis, size))
    for name, axis, size in computed:
        declared = graph.types[name]
        fixed = TensorType(declared.dtype, (declared.dims[axis],)).substitute(sizes)
        if fixed.is_static and fixed.shape[0] != size:
            is_known = isinstance(declared.dims[axis], int)
            expected_size = "" if is_known else f" = {fixed.shape[0]}"
            raise _wrong_size(graph, name, axis, np.shape(inputs[name]), expected_size)
    return sizes


def _wrong_size(
    graph: Graph, name: str, axis: int, shape: tuple[int, ...], expected: str
) -> InputError:
    """expected: what follows the model's size where that is no number."""
    return InputError(
        f"axis {axis} has size {shape[axis]}, the model takes {graph.types[name].dims[axis]}"
        f"{expected}",
        place=f"input {name!r} of shape {shape}",
    )


def _require_within(graph: Graph, symbol: str, size: int, name: str, axis: int) -> None:
    """Raise `InputError` for a size outside of the bounds that are stated of a symbol."""
    bounds = graph.bounds.get(symbol)
    if bounds is None:
        return
    low, high = bounds
    if size < low or (high is not None and size > high):
        raise InputError(
            f"axis {axis} has size {size}; {symbol} is stated to be {bounds_text(bounds)}",
            place=f"input {name!r}",
            next_step="give an input within the bounds, or load the model with others",
        )
