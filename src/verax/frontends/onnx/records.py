"""Shapes that an ONNX file records besides its inputs' and outputs': what they are worth.

`value_info` is what somebody's shape inference thought, often in another version than the one at
hand, and no runtime needs it. Where it differs from the operators' meaning it is not used, and the
model says so. onnx's own inference is known to differ: with `ceil_mode` it counts a last window
that begins in the padding, which the operator's text leaves out; what it then writes for the
network's outputs is a remark as well. So is an output recorded with open axes in another rank:
PyTorch's exporter writes the names that it was given for the axes of an output onto the shape that
it saw, though a Reshape behind it has another. Any other size of an output is told by a warning, as
ONNX Runtime does, and the network computes what its operators say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verax.frontends.common.foreign import ForeignNode
from verax.frontends.model import OVERRULED
from verax.ir.types import TensorType

NOTE = OVERRULED
"""Where a model's metadata says what was recorded otherwise."""
LISTED = 3
"""Values that the note names."""
POOLS = ("MaxPool", "AveragePool", "LpPool")


def inferred_otherwise(
    value: str,
    nodes: Sequence[ForeignNode],
    types: Mapping[str, TensorType],
) -> bool:
    """Whether `value` depends on a pool for which onnx infers another size than the operator has.

    types: of the file's values that are known, by name.
    """
    makers = {o: node for node in nodes for o in node.outputs if o}
    waiting, seen = [value], {value}
    while waiting:
        node = makers.get(waiting.pop())
        if node is None:
            continue
        if node.op_type in POOLS and _counts_one_more(node, types):
            return True
        fresh = [v for v in node.inputs if v and v not in seen]
        seen.update(fresh)
        waiting += fresh
    return False


def _counts_one_more(node: ForeignNode, types: Mapping[str, TensorType]) -> bool:
    """Whether ceil((n + pads - extent) / stride) + 1 is more than the operator's output."""
    if (
        not node.attributes.get("ceil_mode")
        or not {node.inputs[0], node.outputs[0]} <= types.keys()
    ):
        return False
    x, y = types[node.inputs[0]].dims[2:], types[node.outputs[0]].dims[2:]
    kernel = node.attributes.get("kernel_shape", ())
    if not isinstance(kernel, tuple) or len(kernel) != len(x):
        return False
    rank = len(kernel)
    strides = node.attributes.get("strides") or (1,) * rank
    dilations = node.attributes.get("dilations") or (1,) * rank
    pads = node.attributes.get("pads") or (0,) * (2 * rank)
    for n, m, k, s, d, begin, end in zip(x, y, kernel, strides, dilations, pads, pads[rank:]):
        if not isinstance(n, int) or not isinstance(m, int):
            continue
        if -(-(n + begin + end - (k - 1) * d - 1) // s) + 1 > m:
            return True
    return False


def note(overruled: Sequence[tuple[str, str, str]]) -> str:
    """Text about values that were overruled, given as (value, recorded type, inferred type)."""
    listed = "; ".join(
        f"{v!r} as {recorded}, it is {inferred}" for v, recorded, inferred in overruled[:LISTED]
    )
    more = f"; and {len(overruled) - LISTED} more" if len(overruled) > LISTED else ""
    return f"the file records {listed}{more}"
