"""Convolution and transposed convolution on kernels of the blocked layout."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.layout import Strides, calls_function
from verax.compiler.place.bf16_inputs import product_inputs, reads_pairs
from verax.compiler.place.convolution.epilogues import epilogue
from verax.compiler.place.convolution.weights import packed_bias, packed_weights
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.layout_transposes import pixels_of
from verax.compiler.place.movement.pixels import come_as_pixels
from verax.compiler.place.storage import LANES, Physical, Placed, Pointer
from verax.compiler.place.strides import kernel_strides, triple
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.epilogues import fits_any_type
from verax.compiler.plan.expressions import element_expr
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, Pads, can_block
from verax.ir.assumptions import NotOpenError, assumed_sizes
from verax.ir.dim import evaluated
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.windows import Windows, border_is_modest

WIDE = (DType.float32, DType.float64)
"""Element types of convolutions; halves are widened ahead."""


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether the kernels can run this node: float32 or float64, up to three axes."""
    types = [t for t in (*product_inputs(graph, node), *graph.output_types(node)) if t is not None]
    return (
        all(t.is_static and t.dtype in WIDE and 0 not in t.shape for t in types)
        and can_block(types[0])
        and (can_block(types[-1]))
    )


def _windows(graph: Graph, node: Node) -> Windows:
    assert isinstance(node.op, Conv | ConvTranspose)
    x, w = graph.input_types(node)[:2]
    assert x is not None and w is not None
    return node.op.spatial(x, w)


def conv_spec(
    graph: Graph, node: Node, x: Strides, y: Strides, stored: DType = DType.float32
) -> ConvSpec:
    """The kernel's view of `node`, for an input and an output with these strides. stored: element
    type of what is written, after what is fused."""
    op, windows = node.op, _windows(graph, node)
    assert isinstance(op, Conv | ConvTranspose)
    sizes = zip(windows.output, windows.strides)
    if isinstance(op, ConvTranspose) and any(n < s for n, s in sizes if not isinstance(n, int)):
        raise NotOpenError("a phase of a transposed convolution has no output")
    x_type, w_type = graph.types[node.inputs[0] or ""], graph.types[node.inputs[1] or ""]
    y_type = graph.types[node.outputs[0]]
    return ConvSpec(
        batch=x_type.shape[0],
        channels=x_type.shape[1],
        filters=y_type.shape[1],
        output=triple(windows.output, 1),
        kernel=triple(windows.kernel_shape, 1),
        x=x,
        y=y,
        groups=op.groups,
        strides=triple(windows.strides, 1),
        dilations=triple(windows.dilations, 1),
        pads=triple([begin for begin, _ in windows.pads], 0),
        bias=len(node.inputs) > 2 and node.inputs[2] is not None,
        transposed=isinstance(op, ConvTranspose),
        types=contraction(
            str(x_type.dtype),
            str(x_type.dtype if reads_pairs(graph, node) else w_type.dtype),
            str(stored),
        ),
    )


def plan_convolution(planning: Planning, node: Node) -> Alternatives:
    """One alternative. Few channels are read row-major or as pixels, as images come; others in
    blocks."""
    graph = planning.graph
    layout_and_pads = data_layout(graph, node) if is_compiled(graph, node) else None
    if layout_and_pads is None:
        return NoKernel(
            "convolutions take float32 or float64, one to three axes and borders that are no "
            "larger than what they surround"
        )
    return planning.refused(node, ConvSpec) or (
        Choice(
            "convolution",
            ((0, *layout_and_pads),),
            output=Layout.blocked,
            takes_epilogue=True,
            spec=ConvSpec,
        ),
    )


def data_layout(graph: Graph, node: Node) -> tuple[Layout, Pads] | None:
    """The layout and the border in which the kernel reads its data; None for a border out of
    proportion."""
    nothing = Strides(0, 0, 0, 0)
    x = graph.types[node.inputs[0] or ""]
    windows = _windows(graph, node)
    max_after = triple([end for _, end in windows.pads], 0)
    spec = conv_spec(graph, node, nothing, nothing)
    border = spec.border(triple(x.shape[2:], 1), max_after)
    pads: Pads = tuple(border[3 - (x.rank - 2) :])
    reach = [a + n + b for n, (a, b) in zip(x.shape[2:], pads)]
    lead = x.shape[0] * x.shape[1]
    if not border_is_modest(lead, windows.input, windows.output, reach, MOST_WITH_BORDER):
        return None
    layout = Layout.blocked
    if x.shape[1] < LANES // 2 and getattr(node.op, "groups", 1) == 1:
        layout = Layout.pixels if come_as_pixels(graph, node.inputs[0] or "") else Layout.plain
    return layout, pads


MOST_WITH_BORDER = 1 << 25
"""Elements of an input with its border, in any case: DeepLab's kernels reach 36 pixels beyond
images of 14 or 33, with up to 2,048 channels."""
IN_CACHE = 1 << 22
"""Bytes of a value that is read again from a cache."""


def fits(graph: Graph, value: str, node: Node) -> bool:
    """As for any type, but no elementary function behind a pointwise convolution.

    A tile there is a short sum: the processor stands still until its few functions are done, which
    costs more than a pass over what lies in a cache.
    """
    if not fits_any_type(graph, value, node):
        return False
    producer, expr = graph.producers.get(value), element_expr(graph, node)
    if producer is None or not isinstance(producer.op, Conv) or expr is None:
        return True
    pointwise = not {*_windows(graph, producer).kernel_shape} - {1}
    small = evaluated(Physical(graph.types[value]).nbytes, assumed_sizes()) <= IN_CACHE
    return not (pointwise and small and calls_function(expr))


@plans(Conv, ConvTranspose, plan=plan_convolution, fits=fits)
def place_convolution(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, weights, bias, operands, y."""
    graph, node = lowering.graph, group.root
    ((_, layout, pads),) = choice.inputs
    x = lowering.values.read(node.inputs[0] or "", layout, pads)
    fused, operands = epilogue(lowering, group)
    pixels = pixels_of(lowering, group.output)
    y = pixels[0] if pixels else lowering.values.write(group.output, Layout.blocked)
    written = pixels[1] if pixels else kernel_strides(y.physical)
    stored = graph.types[group.output].dtype
    spec = conv_spec(graph, node, kernel_strides(x.physical), written, stored)
    spec = dataclasses.replace(spec, epilogue=fused).upright()
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    weights = packed_weights(lowering, node.inputs[1] or "", spec, schedule, group.label)
    arguments: list[Pointer | Placed] = [x, weights]
    if spec.bias:
        arguments.append(packed_bias(lowering, node.inputs[2] or "", group.label))
    lowering.calls.call(spec, [*arguments, *operands, y], group.label, schedule)
