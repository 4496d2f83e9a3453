"""CumSum and CumProd along an axis that is a constant."""

from __future__ import annotations

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.running import RunningSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ops.sums.cumulative import Cumulative


def plan_running(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: the axis, which may be negative."""
    axis = planning.graph.constants.get(node.inputs[1] or "")
    if axis is None:
        return NoKernel("the axis is computed")
    types = planning.graph.input_types(node)[:1]
    return planning.refused_types(types, RunningSpec) or (
        Choice("running", detail=int(axis.reshape(-1)[0])),
    )


@plans("CumSum", "CumProd", plan=plan_running)
def place_running(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, output; backwards by a negative stride."""
    node, op = group.root, group.root.op
    assert isinstance(op, Cumulative)
    x, y = lowering.values.read(node.inputs[0] or ""), lowering.values.write(node.outputs[0])
    shape = x.physical.shape
    axis = choice.detail % len(shape)
    order = [*(a for a in range(len(shape)) if a != axis), axis]

    def access(physical: Physical) -> Access:
        *rows, along = (physical.strides[a] for a in order)
        dtype = str(physical.type.dtype)
        if op.reverse:
            return Access(dtype, (*rows, -along), (shape[axis] - 1) * along)
        return Access(dtype, (*rows, along))

    outer = tuple(shape[a] for a in order[:-1])
    kind = "sum" if op.kind == "CumSum" else "prod"
    spec = RunningSpec(
        outer, shape[axis], access(x.physical), access(y.physical), kind, op.exclusive
    )
    lowering.calls.call(spec, [x, y], group.label)
