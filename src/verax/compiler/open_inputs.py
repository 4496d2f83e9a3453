"""What the inputs of a network leave open: sizes of symbols, sizes that data decide, and inputs
whose values set shapes."""

from __future__ import annotations

from collections.abc import Mapping

from verax.base.errors import GraphError
from verax.compiler.plan.counting import counts_size
from verax.ir.deferred import is_decided_by_shapes
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType


def leaves_symbols_open(graph: Graph) -> bool:
    """Whether sizes of symbols are all that the inputs leave open, each of them the size of some
    axis, and those of state are known."""
    dims = {str(d) for v in graph.inputs for d in graph.types[v].dims}
    are_symbols = all(name in dims for name in graph.symbols())
    is_state = all(v in graph.initial and graph.types[v].is_static for v in graph.updates)
    return are_symbols and is_state and not shape_defining_inputs(graph)


def has_counted_sizes(graph: Graph) -> bool:
    """Whether data decide sizes, and kernels can count what does."""
    if is_decided_by_shapes(graph):
        return False
    names = graph.symbols()
    return any(
        counts_size(n.op) and graph.types[n.outputs[0]].symbols() - names for n in graph.nodes
    )


def shape_defining_inputs(graph: Graph) -> tuple[str, ...]:
    """Graph inputs whose values set shapes: small integer tensors that type rules ask for.

    A program is specialized for their values, as it is for shapes. Of a network that has none,
    no nodes need be read where that is known (`frontends.deferred_model`).
    """
    if is_decided_by_shapes(graph):
        return ()
    symbols = graph.symbols()
    from_input: dict[str, frozenset[str]] = {v: frozenset([v]) for v in graph.inputs}
    defining: set[str] = set()
    for node in graph.nodes:
        sources = frozenset().union(
            *(from_input.get(v, frozenset()) for v in node.inputs if v is not None)
        )
        inherited = symbols.union(*(t.symbols() for t in graph.input_types(node) if t is not None))
        dynamic = any(not t.symbols() <= inherited for t in graph.output_types(node))
        if dynamic:
            data = None if node.op.kind in ("Range", "ConstantOfShape") else node.inputs[0]
            defining |= {
                v
                for v in node.inputs
                if v in graph.inputs and _sets_shapes(graph.types[v]) and v != data
            }
            asks = bool(node.inputs) and not counts_size(node.op)  # else all of its data decide
            if asks and not any(v in defining for v in node.inputs):
                defining |= {v for v in sources if _sets_shapes(graph.types[v])}
        for output in node.outputs:
            from_input[output] = sources if _sets_shapes(graph.types[output]) else frozenset()
    return tuple(v for v in graph.inputs if v in defining)


def _sets_shapes(type_: TensorType) -> bool:
    if not type_.is_static or type_.rank > 1 or int(type_.size) > 64:
        return False
    return type_.dtype in (DType.int64, DType.int32) or type_.dtype.is_float


def naming_sizes(error: GraphError, sizes: Mapping[str, int]) -> GraphError:
    """The error of a node that inputs of these sizes do not fit, saying which they are."""
    if not sizes:
        return error
    listed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    stated = f"the inputs' sizes are {listed}"
    steps = (error.next_step, stated) if error.next_step else (stated,)
    return type(error)(error.cause, place=error.place or "", next_step="; ".join(steps))
