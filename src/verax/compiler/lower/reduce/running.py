"""CumSum and CumProd along an axis that is a constant."""

from __future__ import annotations

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.running import RunningSpec
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.compiler.lower.storage import Physical
from verax.ops.sums.cumulative import Cumulative


@lowers("CumSum", "CumProd")
def lower_running(lowering: Lowering, group: Group) -> None:
    """Input, output; backwards by a negative stride."""
    node, op = group.root, group.root.op
    assert isinstance(op, Cumulative)
    given = lowering.graph.constants.get(node.inputs[1] or "")
    if given is None:
        raise NoKernel("the axis is computed")
    x, y = lowering.read(node.inputs[0] or ""), lowering.write(node.outputs[0])
    shape = x.physical.shape
    axis = int(given.reshape(-1)[0]) % len(shape)
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
    lowering.call(spec, [x, y], group.label)
