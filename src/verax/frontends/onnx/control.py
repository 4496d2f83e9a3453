"""ONNX's If, Loop and Scan, as every format's branches and loops (`common.control`)."""

from __future__ import annotations

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import Branch, CountedLoop, Scan
from verax.frontends.common.foreign import ForeignNode, Subgraph
from verax.frontends.common.ledger import Attributes

CONTROL = ("If", "Loop", "Scan")


def is_control(node: ForeignNode) -> bool:
    """Whether `control_of` takes the node."""
    return type(node) is ForeignNode and not node.domain and node.op_type in CONTROL


def control_of(node: ForeignNode, attributes: Attributes) -> ForeignNode:
    """The branch or loop that a node is. Raises `ModelError` where it contradicts itself."""
    kind = {"If": _branch, "Loop": _loop, "Scan": _scan}[node.op_type]
    control_node = kind(node, attributes)
    attributes.close()
    return control_node


def _graph(node: ForeignNode, attributes: Attributes, name: str) -> Subgraph:
    graph = attributes.get(name)
    if not isinstance(graph, Subgraph):
        raise ModelError(f"the attribute {name} is no graph", place=node.place)
    return graph


def _branch(node: ForeignNode, attributes: Attributes) -> ForeignNode:
    then, otherwise = (_graph(node, attributes, name) for name in ("then_branch", "else_branch"))
    if len(node.inputs) != 1 or not node.inputs[0]:
        raise ModelError("it has no condition", place=node.place)
    return Branch(
        "If",
        node.inputs,
        node.outputs,
        {},
        node.name,
        depth=node.depth,
        then=then,
        otherwise=otherwise,
    )


def _loop(node: ForeignNode, attributes: Attributes) -> ForeignNode:
    body = _graph(node, attributes, "body")
    inputs = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    return CountedLoop("Loop", inputs, node.outputs, {}, node.name, depth=node.depth, body=body)


def _scan_counts(node: ForeignNode, attributes: Attributes, inputs: int) -> tuple[int, int, int]:
    """How many inputs are sliced, how many values are carried, how many outputs are stacked."""
    scanned = attributes.integer("num_scan_inputs", 0)
    carried = inputs - scanned
    stacked = len(node.outputs) - carried
    if not 0 < scanned <= inputs or stacked < 0:
        raise ModelError("its numbers of inputs and outputs do not fit", place=node.place)
    return scanned, carried, stacked


def _scan_of_batch(node: ForeignNode, attributes: Attributes) -> ForeignNode:
    """Scan of opset 8, where every value has a batch axis in front: a loop over the batch whose
    body is the loop that opset 9 has."""
    if node.inputs and node.inputs[0]:
        raise UnsupportedError(
            "Scan of opset 8 with sequences of several lengths (sequence_lens) is not supported",
            place=node.place,
            next_step="leave sequence_lens out where all are as long as the scanned inputs",
        )
    body, inputs = _graph(node, attributes, "body"), node.inputs[1:]
    scanned, carried, stacked = _scan_counts(node, attributes, len(inputs))
    backwards = attributes.integers("directions", (0,) * scanned)
    if len(backwards) != scanned:
        raise ModelError("its directions do not fit its inputs", place=node.place)
    label = node.name or next((o for o in node.outputs if o), node.op_type)
    slices = tuple(f"{label}/one/{i}" for i in range(len(inputs)))
    results = tuple(f"{label}/one's {i}" for i in range(len(node.outputs)))
    one = Scan(
        "Scan", slices, results, {}, f"{label}/one", depth=node.depth + 1, body=body,
        carried_count=carried, axes=(0,) * scanned, backwards=backwards, out_axes=(0,) * stacked,
        out_backwards=(0,) * stacked,
    )  # fmt: skip
    zeros = (0,) * len(inputs), (0,) * len(results)
    return Scan(
        "Scan", inputs, node.outputs, {}, node.name, depth=node.depth,
        body=Subgraph(slices, results, {}, (one,)), carried_count=0, axes=zeros[0],
        backwards=zeros[0],
        out_axes=zeros[1], out_backwards=zeros[1],
    )  # fmt: skip


def _scan(node: ForeignNode, attributes: Attributes) -> ForeignNode:
    if node.version < 9:
        return _scan_of_batch(node, attributes)
    body = _graph(node, attributes, "body")
    scanned, carried, stacked = _scan_counts(node, attributes, len(node.inputs))
    axes = attributes.integers("scan_input_axes", (0,) * scanned)
    backwards = attributes.integers("scan_input_directions", (0,) * scanned)
    out_axes = attributes.integers("scan_output_axes", (0,) * stacked)
    out_backwards = attributes.integers("scan_output_directions", (0,) * stacked)
    lists = ((axes, scanned), (backwards, scanned), (out_axes, stacked), (out_backwards, stacked))
    if any(len(values) != expected_count for values, expected_count in lists):
        raise ModelError("its axes or directions do not fit its inputs", place=node.place)
    return Scan(
        "Scan", node.inputs, node.outputs, {}, node.name, depth=node.depth, body=body,
        carried_count=carried, axes=axes, backwards=backwards,
        out_axes=out_axes, out_backwards=out_backwards,
    )  # fmt: skip
