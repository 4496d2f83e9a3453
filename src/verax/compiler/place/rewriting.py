"""What becomes of a graph for a target, after all passes and before it is planned: values that are
stored in fewer bits. Each is a counted decision (`plan.steps`) that changes no number."""

from __future__ import annotations

from verax.compiler.kernels.target import Target
from verax.compiler.place.integer.convolution import takes_bytes
from verax.compiler.place.integer.uint8_storage import store_in_bytes
from verax.compiler.place.products.bf16_storage import store_in_bfloat16
from verax.compiler.plan.steps import Decisions
from verax.ir.graph import Graph


def rewrite_for_target(graph: Graph, target: Target, decisions: Decisions) -> Graph:
    """The graph with values in bytes and in bfloat16, as far as `decisions` allow. Nodes keep their
    number and their order."""
    scheme = target.byte_products
    if scheme:
        graph = store_in_bytes(graph, lambda g, n: takes_bytes(g, n, scheme), decisions)
    return store_in_bfloat16(graph, decisions) if target.has_bf16_dot else graph
