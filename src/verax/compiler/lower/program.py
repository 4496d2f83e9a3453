"""lower(graph): layouts, groups, kernel calls, image. Importing it registers every family."""

from __future__ import annotations

import dataclasses

from verax.base.settings import Settings
from verax.compiler.kernels.target import Target
from verax.compiler.lower import (  # noqa: F401  (each registers its operators)
    convolution,
    linear,
    movement,
    pooling,
    recurrent,
    reduction,
    resize,
)
from verax.compiler.lower.elementwise import lower_elementwise, prefers_blocked
from verax.compiler.lower.emit import build_image
from verax.compiler.lower.epilogues import fits_epilogue
from verax.compiler.lower.expressions import is_elementwise
from verax.compiler.lower.fusion import Group, group_nodes
from verax.compiler.lower.lowering import (
    FAMILIES,
    KernelCall,
    Layouts,
    Lowering,
    NoKernel,
    ReferenceCall,
)
from verax.compiler.lower.storage import Layout, widest
from verax.ir.graph import Graph, Node
from verax.ops.elementwise import Elementwise
from verax.runtime.image import Image

MOVING = "its shape is known only when it runs"


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """The image of a program and what to tell people about it."""

    image: Image
    lines: tuple[str, ...]
    on_reference: tuple[str, ...]
    steps: tuple[KernelCall | ReferenceCall, ...] = ()


def lower(
    graph: Graph, target: Target, settings: Settings, separate: bool = False
) -> LoweredProgram:
    """Turn a graph with static inputs into a program for `target`.

    separate: one native function per kernel call, for profiling.
    """
    lowering = Lowering(graph, target, settings)
    groups = group_nodes(graph, _takes_epilogue, _joins, fuse=settings.opt_level >= 1)
    _wanted_layouts(lowering, groups)
    for group in groups:
        _lower_group(lowering, group)
    lowering.finish_outputs()
    image = build_image(lowering, separate)
    lines = tuple(_line(i, step) for i, step in enumerate(lowering.steps))
    on_reference = tuple(s.label for s in lowering.steps if isinstance(s, ReferenceCall))
    return LoweredProgram(image, lines, on_reference, tuple(lowering.steps))


def _takes_epilogue(graph: Graph, node: Node) -> bool:
    family = FAMILIES.get(node.op.kind)
    return family is not None and family.epilogue(graph, node)


def _joins(graph: Graph, root: Node, value: str, node: Node) -> bool:
    """Whether `node` may join the group of `root` through `value`."""
    if is_elementwise(graph, root):
        return True
    family = FAMILIES[root.op.kind]
    return (family.fits or fits_epilogue)(graph, value, node)


def _wanted_layouts(lowering: Lowering, groups: list[Group]) -> None:
    """Decide which values are made blocked, and which borders they need."""
    for group in groups:
        wanted = _layouts(lowering, group.root)
        if wanted is None:
            if lowering.blocks_layouts and prefers_blocked(lowering, group):
                lowering.blocked.add(group.output)
            continue
        if wanted.output is Layout.blocked and lowering.blocks_layouts:
            lowering.blocked.add(group.output)
        for index, (layout, pads) in wanted.inputs.items():
            value = group.root.inputs[index]
            assert value is not None
            key = (value, layout)
            lowering.borders[key] = widest(lowering.borders.get(key, ()), pads)


def _layouts(lowering: Lowering, node: Node) -> Layouts | None:
    family = FAMILIES.get(node.op.kind)
    if family is None or family.layouts is None or not lowering.is_static(node):
        return None
    return family.layouts(lowering, node)


def _lower_group(lowering: Lowering, group: Group) -> None:
    static = all(lowering.is_static(n) for n in group.nodes) and not any(
        v in lowering.dynamic for n in group.nodes for v in n.inputs if v is not None
    )
    why = _no_kernel(lowering, group) if static else MOVING
    if why:
        for i, node in enumerate(group.nodes):
            if i > 0:
                why = _no_kernel(lowering, Group(node)) if static else MOVING
            if why:
                lowering.reference(node, why)
    if not lowering.blocks_layouts:
        for node in group.nodes:
            for value in node.outputs:
                if value in lowering.placed:
                    lowering.placed[value] = [lowering.read_contiguous(value)]


def _no_kernel(lowering: Lowering, group: Group) -> str:
    """Why no kernel takes the group; nothing when its calls were made."""
    if any(0 in t.shape for n in group.nodes for t in lowering.graph.output_types(n)):
        return "nothing to compute"  # the reference knows the shape
    try:
        if is_elementwise(lowering.graph, group.root):
            lower_elementwise(lowering, group)
        else:
            family = FAMILIES.get(group.root.op.kind)
            if family is None:
                raise NoKernel(_unregistered(lowering.graph, group.root))
            family.lower(lowering, group)
    except NoKernel as why:
        return str(why)
    return ""


def _unregistered(graph: Graph, node: Node) -> str:
    op = node.op
    if op.no_kernel or not isinstance(op, Elementwise):
        return op.no_kernel or "no lowering is registered"
    dtypes = {str(t.dtype) for t in (*graph.input_types(node), *graph.output_types(node)) if t}
    return f"no expression of it for {', '.join(sorted(dtypes))}"


def _line(number: int, step: KernelCall | ReferenceCall) -> str:
    if isinstance(step, ReferenceCall):
        return f"{number:4} reference  {step.label}: {step.why}"
    kernel = step.kernel
    return f"{number:4} {kernel.name:<18} {kernel.items:5} items  {step.label}"
