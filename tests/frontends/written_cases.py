"""Cases of the house's operators as graphs of one node, and what to expect of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.operator import Case, Evaluation
from verax.ir.types import DType, TensorType
from verax.judge.decide.criterion import decide
from verax.numerics.error_model import Rounding
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate_node, to_work

NOT_IN_ONNX = {
    ("MaxUnpool", DType.int8): "ONNX has float MaxUnpool only",
    ("MeanVarianceNormalization", DType.float64): "ONNX defines it with float32 constants",
    ("LayerNormalization", DType.float64): "ONNX has float32 and bfloat16 statistics only",
    ("MultiBoxDetection", DType.float64): "ONNX's NonMaxSuppression is for float32",
    ("ErfInv", DType.float64): "its polynomials have the digits of float32",
}
"""Refused by the writer: an operator, and the first type of its inputs."""
CONSTANT = {"Requantize": (1, 2)}
"""Inputs whose values the written form holds."""
HONEST = (Kind.identical, Kind.rounding)


def graph_of(case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    """A case as a graph of one node, and the values of its inputs."""
    b, names, values = Builder("case"), [], {}
    for i, array in enumerate(case.inputs):
        if array is None:
            names.append(None)
        elif i in case.constant or i in CONSTANT.get(case.op.kind, ()):
            names.append(b.constant(np.array(array), f"c{i}"))
        else:
            names.append(b.input(f"x{i}", TensorType.of(array)))
            values[f"x{i}"] = array
    while names and names[-1] is None:
        names.pop()
    outputs = [f"y{i}" for i in range(case.op.output_count)]
    b.add_all(case.op, names, outputs, "node")
    return b.graph(outputs), values


def first_type(graph: Graph) -> DType | None:
    """Element type of the first input."""
    return graph.types[graph.inputs[0]].dtype if graph.inputs else None


def is_refused(case: Case, graph: Graph) -> bool:
    """Whether ONNX cannot say what the case does."""
    op: Any = case.op
    own = op.kind == "LSTM" and (op.cell_clip is not None or op.input_from_forget)
    own |= op.kind == "LSTM" and len(case.inputs) > 8
    own |= op.kind == "If" and "" in (op.then_branch, op.else_branch)
    return own or (op.kind, first_type(graph)) in NOT_IN_ONNX


def expected(graph: Graph, values: dict[str, np.ndarray]) -> list[tuple[Any, Rounding | None]]:
    """The outputs of a graph of one node by meaning, and what rounding may do to them."""
    (node,) = graph.nodes
    types, outputs = graph.input_types(node), graph.output_types(node)
    given: dict[str, np.ndarray] = {**graph.constants, **values}
    wide = [
        None if v is None or t is None else to_work(given[v], t.dtype, np.dtype(np.float64))
        for v, t in zip(node.inputs, types)
    ]
    results = evaluate_node(node, wide, types, outputs)
    with np.errstate(all="ignore"):
        errors = node.op.error(Evaluation(types, outputs), wide, results)
    return list(zip(results, errors, strict=True))


def is_right(found: np.ndarray, want: np.ndarray, error: Rounding | None, dtype: DType) -> bool:
    """Whether the values are those of the meaning, or round as the error model allows."""
    if found.dtype != dtype.numpy:
        return False
    with np.errstate(all="ignore"):
        if error is None:
            return np.array_equal(found, want.astype(dtype.numpy), equal_nan=dtype.is_float)
    if not np.array_equal(np.isnan(found), np.isnan(want)):
        return False
    return decide(np.nan_to_num(found), np.nan_to_num(want), error).kind in HONEST
