"""Convolutions of integers, summed exactly, on the kernels of the blocked layout.

The kernels take 16 bits: the data minus its zero point, so that a border of zeros is the padding,
by the weights minus theirs, centered when the network is compiled. Sums are exact in 32 bits (as
far as the operator's own are), so instructions do not matter. Data of 16 bits around a zero point
takes 32. Where groups have a few channels and no sum can leave 24 bits, lanes are summed in
float32. Where the machine multiplies bytes (`Target.byte_products`), they take those (`bytes`).
Windows of 3x3 go by Winograd's filtering where that saves work (`winograd`).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.emit import pack_conv_weights
from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.products.paired_bytes import OFTEN, pack_paired
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES
from verax.compiler.place.convolution.epilogues import epilogue
from verax.compiler.place.integer.columns_as_channels import (
    beside,
    lie_beside,
    spec_beside,
    weights_beside,
)
from verax.compiler.place.integer.uint8_storage import (
    bytes_minus,
    shifted_to_uint8,
    starting_sums,
    subtracted,
)
from verax.compiler.place.integer.weights import WeightFacts, centered, facts_of
from verax.compiler.place.integer.winograd import border, lower_tiles, tile_of
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.pixels import come_as_pixels
from verax.compiler.place.storage import Physical, Placed, Pointer
from verax.compiler.place.strides import kernel_strides, triple
from verax.compiler.plan.bounded import Bounds
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.epilogues import fits_any_type
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, Pads, can_block, widest
from verax.compiler.plan.ranges import range_of
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics import winograd
from verax.numerics.expr import Expr, trace
from verax.ops.windows.integer_convolution import ConvInteger, ConvTransposeInteger
from verax.ops.windows.windows import border_is_modest

EXACT = 2**24
"""Whole numbers up to here are float32 numbers."""


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether the kernels can run this node: constant weights and zero points, up to three axes."""
    types = [t for t in (*graph.input_types(node), *graph.output_types(node)) if t is not None]
    are_constant = all(v is None or v in graph.constants for v in node.inputs[1:])
    if not are_constant or not all(t.is_static for t in types):
        return False
    return can_block(types[0]) and can_block(types[-1])


def _zero(graph: Graph, node: Node, index: int) -> np.ndarray:
    """The zero point that is the input `index`."""
    value = node.inputs[index] if len(node.inputs) > index else None
    return np.zeros((), np.int64) if value is None else graph.constants[value].astype(np.int64)


def _centered_weights(graph: Graph, node: Node) -> np.ndarray:
    """int64, as the operator has them."""
    return centered(graph.constants[node.inputs[1] or ""], _zero(graph, node, 3))


def _facts(graph: Graph, node: Node) -> WeightFacts:
    filters = 1 if isinstance(node.op, ConvTransposeInteger) else 0
    return facts_of(graph.constants[node.inputs[1] or ""], _zero(graph, node, 3), filters)


def _largest(graph: Graph, node: Node) -> int:
    """Of the data in size, zero point subtracted."""
    info = np.iinfo(graph.types[node.inputs[0] or ""].dtype.numpy)
    zero = int(_zero(graph, node, 2))
    return max(abs(int(info.min) - zero), abs(int(info.max) - zero))


def _carried(graph: Graph, node: Node) -> DType:
    """What data minus its zero point is stored in."""
    fits = _largest(graph, node) < 2**15 or not _zero(graph, node, 2)
    return DType.int16 if fits else DType.int32


def _types(graph: Graph, node: Node, spec: ConvSpec, stored: DType) -> ContractionTypes:
    """What factors and sums are carried in."""
    op, max_sum = node.op, _facts(graph, node).max_sum
    assert isinstance(op, ConvInteger | ConvTransposeInteger)
    if spec.transposed and spec.groups > 1:  # the same index of every group
        max_sum = max_sum * spec.groups
    bound = max_sum * _largest(graph, node)
    data = str(_carried(graph, node))
    if not spec.aligned or spec.depthwise:
        total = "float32" if bound < EXACT else str(op.output_dtype)
        return ContractionTypes(data, total, total, str(stored))
    total = "int64" if op.output_dtype is DType.int64 and bound >= 2**31 else "int32"
    factor = "int16" if (data, total) == ("int16", "int32") else "int32"
    return ContractionTypes(data, factor, total, str(stored))


def _spec(graph: Graph, node: Node, x: Strides, y: Strides, stored: DType) -> ConvSpec:
    """The kernel's view of `node`, for an input and an output with these strides."""
    op = node.op
    assert isinstance(op, ConvInteger | ConvTransposeInteger)
    x_type, w_type = graph.types[node.inputs[0] or ""], graph.types[node.inputs[1] or ""]
    windows = op.convolution().spatial(x_type, w_type)
    spec = ConvSpec(
        batch=x_type.shape[0],
        channels=x_type.shape[1],
        filters=graph.types[node.outputs[0]].shape[1],
        output=triple(windows.output, 1),
        kernel=triple(windows.kernel_shape, 1),
        x=x,
        y=y,
        groups=op.groups,
        strides=triple(windows.strides, 1),
        dilations=triple(windows.dilations, 1),
        pads=triple([begin for begin, _ in windows.pads], 0),
        bias=False,
        transposed=isinstance(op, ConvTransposeInteger),
        types=ContractionTypes("int16", "int16", "int32", str(stored)),
    )
    return dataclasses.replace(spec, types=_types(graph, node, spec, stored))


def _data(graph: Graph, node: Node) -> tuple[int, int]:
    """The lowest and the highest number of the data, zero point subtracted."""
    low, high = range_of(graph, node.inputs[0] or "")
    zero = int(_zero(graph, node, 2))
    return low - zero, high - zero


def _tile(graph: Graph, node: Node, byte_products: str) -> int:
    """Of Winograd's filtering; 0 for direct summation."""
    if _carried(graph, node) is not DType.int16:
        return 0
    if graph.types[node.inputs[1] or ""].shape[2:] != (winograd.KERNEL,) * 2:
        return 0
    weights, data = _centered_weights(graph, node), _data(graph, node)
    return tile_of(
        graph,
        node,
        weights,
        data,
        quick=byte_products == "dots" and takes_bytes(graph, node, byte_products),
    )


def _tile_and_pads(graph: Graph, node: Node, byte_products: str) -> tuple[int, Pads | None]:
    """The tile, and the border of zeros that the kernel reads around the data; None for a border
    out of proportion."""
    tile = _tile(graph, node, byte_products)
    return tile, border(graph, node, tile) if tile else _direct_pads(graph, node)


def _direct_pads(graph: Graph, node: Node) -> Pads | None:
    """The same for direct summation."""
    nothing = Strides(0, 0, 0, 0)
    x, w = graph.types[node.inputs[0] or ""], graph.types[node.inputs[1] or ""]
    spec = _spec(graph, node, nothing, nothing, DType.int32)
    pads: Pads = tuple(spec.border(triple(x.shape[2:], 1))[3 - (x.rank - 2) :])
    assert isinstance(node.op, ConvInteger | ConvTransposeInteger)
    windows = node.op.convolution().spatial(x, w)
    reach = [a + n + b for n, (a, b) in zip(x.shape[2:], pads)]
    modest = border_is_modest(x.shape[0] * x.shape[1], windows.input, windows.output, reach)
    return pads if modest else None


def _base(graph: Graph, node: Node) -> int | None:
    """What is taken away from the data to make bytes of it."""
    data = range_of(graph, node.inputs[0] or "")
    return subtracted(data, int(_zero(graph, node, 2)))


def takes_bytes(graph: Graph, node: Node, byte_products: str) -> bool:
    """Whether the products of bytes suit that the machine has (`Target.byte_products`).

    A border of zeros is right where the byte 0 stands for 0. Elsewhere there must be none, and
    each filter's sums start from what the others' zero adds to them.
    """
    if not _fits_bytes(graph, node, byte_products):
        return False
    if int(_zero(graph, node, 2)) == _base(graph, node):
        return True
    pads = _direct_pads(graph, node) or ()
    return not isinstance(node.op, ConvTransposeInteger) and not any(a or b for a, b in pads)


def _fits_bytes(graph: Graph, node: Node, byte_products: str) -> bool:
    """Whether data and weights fit into bytes that the machine multiplies, borders aside."""
    if not isinstance(node.op, ConvInteger | ConvTransposeInteger) or not is_compiled(graph, node):
        return False
    nothing = Strides(0, 0, 0, 0)
    spec = _spec(graph, node, nothing, nothing, DType.int32)
    base, pads = _base(graph, node), _direct_pads(graph, node)
    if spec.types.sum != "int32" or not spec.aligned or spec.depthwise:
        return False
    if not byte_products or base is None or pads is None:
        return False
    facts = _facts(graph, node)
    if facts.lowest < -128 or facts.highest > 127:
        return False
    return byte_products != "pairs" or (
        _pairs_up(spec, facts) and _tile(graph, node, byte_products) == 0
    )


def _pairs_up(spec: ConvSpec, facts: WeightFacts) -> bool:
    """Whether channels are put together in pairs (`paired_bytes`)."""
    whole_blocks = (
        spec.groups == 1 and not spec.transposed and static_size(spec.channels) % LANES == 0
    )
    return whole_blocks and facts.share >= OFTEN


@dataclasses.dataclass(frozen=True)
class _Scheme:
    """How a convolution of integers is computed.

    tile: of Winograd's filtering, 0 for direct summation. pads: the border of zeros around the
    data. beside_in: what an image is stored in whose pixels are put side by side; None where they
    are not. in_bytes: data and weights are bytes, the data minus `base`.
    """

    tile: int
    pads: Pads
    beside_in: DType | None
    in_bytes: bool
    base: int | None


def plan_integer_convolution(planning: Planning, node: Node) -> Alternatives:
    """One alternative, blocked; its detail is a `_Way`. Data that the kernel reads where it lies
    wants its border."""
    graph, byte_products = planning.graph, planning.target.byte_products
    tile, pads = (
        _tile_and_pads(graph, node, byte_products) if is_compiled(graph, node) else (0, None)
    )
    if pads is None:
        return NoKernel(
            "convolutions of integers take constant weights and zero points, one to three axes and "
            "borders that are no larger than what they surround"
        )
    beside_in = None if tile else _beside_in(graph, node, byte_products)
    in_bytes = not tile and (beside_in is DType.uint8 or takes_bytes(graph, node, byte_products))
    base = _base(graph, node) if in_bytes else None
    value = node.inputs[0] or ""
    ready = _is_ready(graph, node) and beside_in is None
    if beside_in is None and in_bytes:
        ready = graph.types[value].dtype is DType.uint8 and base == 0
    inputs: tuple[tuple[int, Layout, Pads], ...] = ((0, Layout.blocked, pads),) if ready else ()
    if not ready and come_as_pixels(graph, value):  # what moves them reads pixels
        inputs = ((0, Layout.pixels, ((0, 0),) * len(pads)),)
    scheme = _Scheme(tile, pads, beside_in, in_bytes, base)
    name = "integer Winograd" if tile else "integer convolution"
    return (
        Choice(
            name, inputs, output=Layout.blocked, takes_epilogue=True, spec=ConvSpec, detail=scheme
        ),
    )


def _is_ready(graph: Graph, node: Node) -> bool:
    """Whether the kernel reads the data as it lies."""
    data = graph.types[node.inputs[0] or ""].dtype
    return data is DType.int16 and not _zero(graph, node, 2)


@plans(ConvInteger, ConvTransposeInteger, plan=plan_integer_convolution, fits=fits_any_type)
def place_integer_convolution(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, weights, operands, y."""
    graph, node = lowering.graph, group.root
    scheme: _Scheme = choice.detail
    pads, beside_in, base = scheme.pads, scheme.beside_in, scheme.base
    weights = _centered_weights(graph, node)
    if scheme.tile:
        x = _centered_data(lowering, node, pads)
        declared = _as_declared(graph, node, "int32")
        lower_tiles(lowering, group, x, weights, scheme.tile, declared, _sums(graph, node, "int32"))
        return
    zero = 0 if base is None else int(_zero(graph, node, 2)) - base
    if beside_in is not None:
        value = node.inputs[0] or ""
        source = lowering.values.find_any(value, Layout.pixels)
        label = f"{value}: pixels side by side"
        center = _center(graph, node) if base is None else bytes_minus(base, graph.types[value])
        x = beside(lowering, source, pads, center, label, zero)
    elif base is None:
        x = _centered_data(lowering, node, pads)
    else:
        x = shifted_to_uint8(lowering, node.inputs[0] or "", base, pads)
    y = lowering.values.write(group.output, Layout.blocked)
    stored = graph.types[group.output].dtype
    spec = _spec(graph, node, kernel_strides(x.physical), kernel_strides(y.physical), stored)
    if beside_in is not None:
        spec, weights = spec_beside(spec, x), weights_beside(weights)
    if base is not None:
        types = ContractionTypes("uint8", "int8", "int32", str(stored))
        paired = lowering.target.byte_products == "pairs"
        spec = dataclasses.replace(spec, types=types, bias=zero != 0, paired=paired)
    total = spec.types.sum
    declared = _as_declared(graph, node, total)
    fused, operands = epilogue(lowering, group, declared, _sums(graph, node, total))
    spec = dataclasses.replace(spec, epilogue=fused)
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    arguments: list[Pointer | Placed] = [x]
    further: list[Pointer | Placed] = []
    if spec.paired:
        packed = pack_paired(weights, spec)
        arguments.append(lowering.weights.packed(packed.main))
        further.append(lowering.weights.packed(packed.further))
    else:
        arguments.append(lowering.weights.packed(pack_conv_weights(weights, spec, schedule)))
    if spec.bias:
        arguments.append(lowering.weights.packed(pack_channels(starting_sums(weights, zero))))
    arguments += further
    lowering.calls.call(spec, [*arguments, *operands, y], group.label, schedule)


def _beside_in(graph: Graph, node: Node, byte_products: str) -> DType | None:
    """What an image is stored in whose pixels are put side by side (`beside`); None where they are
    not."""
    nothing = Strides(0, 0, 0, 0)
    if graph.types[node.inputs[0] or ""].rank != 4:
        return None
    spec = _spec(graph, node, nothing, nothing, DType.int32)
    if byte_products == "dots":
        types = ContractionTypes("uint8", "int8", "int32", "int32")
        narrow = lie_beside(dataclasses.replace(spec, types=types))
        if narrow and _fits_bytes(graph, node, byte_products):
            return DType.uint8
    return DType.int16 if lie_beside(spec) and not takes_bytes(graph, node, byte_products) else None


def _as_declared(graph: Graph, node: Node, total: str) -> Expr | None:
    """The sums in the operator's own type; None where they have it."""
    declared = str(graph.types[node.outputs[0]].dtype)
    if declared == total:
        return None
    return trace(lambda m, s: m.convert(s, declared), [total])


def _sums(graph: Graph, node: Node, total: str) -> Bounds:
    """What sums in `total` can be at the least and at the most."""
    assert isinstance(node.op, ConvInteger | ConvTransposeInteger)
    low, high = _data(graph, node)
    groups = node.op.groups if isinstance(node.op, ConvTransposeInteger) else 1
    max_sum = _facts(graph, node).max_sum * groups * max(abs(low), abs(high))
    if total == "float32":
        return np.float32(-max_sum), np.float32(max_sum)
    ends = np.iinfo(total)
    wraps = max_sum > ends.max
    return (int(ends.min), int(ends.max)) if wraps else (-max_sum, max_sum)


def _center(graph: Graph, node: Node) -> Expr:
    """An element of the data minus its zero point."""
    zero, carried = int(_zero(graph, node, 2)), str(_carried(graph, node))
    return trace(
        lambda m, x: m.sub(m.convert(x, carried), m.const(zero, carried)),
        [str(graph.types[node.inputs[0] or ""].dtype)],
    )


def _centered_data(lowering: Lowering, node: Node, pads: Pads) -> Placed:
    """The data minus its zero point, blocked, with a border of zeros."""
    graph, value = lowering.graph, node.inputs[0] or ""
    if _is_ready(graph, node):
        return lowering.values.read(value, Layout.blocked, pads)
    zero, carried = int(_zero(graph, node, 2)), _carried(graph, node)
    key = (value, f"minus {zero}")
    for placed in lowering.values.centered.get(key, ()):
        if widest(placed.physical.borders, pads) == placed.physical.borders:
            return placed
    type_ = graph.types[value]
    target = lowering.values.allocate(Physical(type_.with_dtype(carried), Layout.blocked, pads))
    source = lowering.values.find_any(value, Layout.blocked, Layout.pixels)
    lowering.calls.copy(source, target, f"{value}: minus {zero}", _center(graph, node))
    lowering.values.centered.setdefault(key, []).append(target)
    return target
