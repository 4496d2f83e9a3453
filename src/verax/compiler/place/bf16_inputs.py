"""Left factors of products that lie in memory in bfloat16, in pairs that a machine multiplies.

`passes.choose_bfloat16` rounds both factors of a product to 8 bits; what it makes is float32. Where
the machine adds two products of bfloat16 at a time (`Target.has_bf16_dot`), `store_in_bfloat16`
stores a factor in 16 bits if everything that reads it is a kernel of such products. Its type says
so, and the sums keep theirs. Nothing here changes a number of the network."""

from __future__ import annotations

from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType


def reads_pairs(graph: Graph, node: Node) -> bool:
    """Whether the left factor of a product lies in bfloat16 beside one of float32. In a network the
    types of both are the same; `store_in_bfloat16` has parted them."""
    x, w = (graph.types[v or ""].dtype for v in node.inputs[:2])
    return (x, w) == (DType.bfloat16, DType.float32)


def product_inputs(graph: Graph, node: Node) -> tuple[TensorType | None, ...]:
    """Types of a product's inputs, as the network has them."""
    x, *remaining = graph.input_types(node)
    assert x is not None
    return (x.widened() if reads_pairs(graph, node) else x, *remaining)
