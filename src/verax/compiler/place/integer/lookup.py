"""Tables of functions of integers: one loop, whose input is the place in the table."""

from __future__ import annotations

import math

from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.choice import Alternatives, Choice, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType
from verax.numerics.expr import Input
from verax.ops.quantized.lookup import LookupTable

STARTS = {DType.int8: 1 << 7, DType.uint8: 0, DType.int16: 1 << 15}
"""Where a table's entry for 0 lies."""


def plan_lookup(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    return planning.refused(node, LoopSpec) or (Choice("lookup"),)


@plans(LookupTable, plan=plan_lookup)
def place_lookup(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, table, output. What the table may hold otherwise is not read."""
    node = group.root
    x, table = (lowering.graph.types[v or ""] for v in node.inputs[:2])
    source, entries = (lowering.values.read_contiguous(v or "") for v in node.inputs[:2])
    target = lowering.values.write_contiguous(group.output)
    lookup = Lookup(0, table.shape[0], 1, checked=False)
    spec = LoopSpec(
        (math.prod(x.shape),),
        (Access(str(x.dtype), (1,)), Access(str(table.dtype), (0,), STARTS[x.dtype], (lookup,))),
        (Access(str(table.dtype), (1,)),),
        (Input(1, str(table.dtype)),),
    )
    lowering.calls.call(spec, [source, entries, target], group.label)
