"""lower(graph): layouts, groups, kernel calls, image. Importing it registers every rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from verax.base.settings import Settings
from verax.compiler.decide.batch import batch_of, best_part, divided
from verax.compiler.decide.expressions import is_elementwise
from verax.compiler.decide.fusion import Group, group_nodes
from verax.compiler.decide.layouts import Decided, Layouts, decide_layouts
from verax.compiler.decide.steps import DIVIDE, Decisions
from verax.compiler.kernels.llvm.builder import Kernel
from verax.compiler.kernels.target import Target
from verax.compiler.lower import control  # noqa: F401  (each of these registers its operators)
from verax.compiler.lower.convolution import (  # noqa: F401
    convolution,
    pooling,
    winograd,
)
from verax.compiler.lower.convolution import strassen as strassen_convolution  # noqa: F401
from verax.compiler.lower.convolution.epilogues import fits_epilogue
from verax.compiler.lower.convolution.pieces import parts_of_results
from verax.compiler.lower.elementwise import lower_elementwise, prefers_blocked
from verax.compiler.lower.image.emit import build_image
from verax.compiler.lower.integer import (  # noqa: F401
    dynamic_quantisation,
    length,
    softmax,
)
from verax.compiler.lower.integer.bytes import stored_in_bytes
from verax.compiler.lower.integer.convolution import takes_bytes
from verax.compiler.lower.lowering import (
    RULES,
    BranchCall,
    CountedCall,
    LoopCall,
    Lowering,
    Native,
    NoKernel,
    ReferenceCall,
    ScheduleOf,
    Step,
    is_static,
    kernel_calls,
)
from verax.compiler.lower.movement import (  # noqa: F401
    indexing,
    movement,
    resize,
    sampling,
)
from verax.compiler.lower.products import (  # noqa: F401
    attention,
    einsum,
    linear,
    recurrent,
    strassen,
)
from verax.compiler.lower.products.pairs import kept_in_halves
from verax.compiler.lower.reduce import (  # noqa: F401
    extremes,
    group_normalization,
    reduction,
    response,
    running,
)
from verax.compiler.lower.search import (  # noqa: F401
    chosen,
    regions_of_interest,
    suppression,
)
from verax.ir.graph import Graph, Node, walk_values
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.per_element import Parametrized
from verax.ops.quantized.quantization import DequantizeLinear
from verax.records.trace import Trace, numbered
from verax.runtime.image import Image

MOVING = "its shape is known only when it runs"


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """The image of a program and what to tell people about it. graph: what was lowered, whose
    nodes steps on the reference count, and which is run for `parts` parts of the batch. kernels: by
    number of the step. trace: the decisions that were made (`decide.steps`)."""

    graph: Graph
    image: Image
    lines: tuple[str, ...]
    on_reference: tuple[str, ...]
    steps: tuple[Step, ...]
    kernels: Mapping[int, Kernel]
    trace: Trace
    parts: int = 1


def lower(
    graph: Graph,
    target: Target,
    settings: Settings,
    separate: bool = False,
    decisions: Decisions | None = None,
    tuned: ScheduleOf | None = None,
) -> LoweredProgram:
    """Turn a graph with static inputs into a program for `target`.

    decisions: what may be decided, by default all of it.
    separate: one native function per kernel call, for profiling.
    tuned: schedules that measuring found; it is asked once for each kernel.
    """
    decisions = decisions or Decisions()
    of_part = _lowered_for_part(graph, target, settings, decisions, tuned)
    own, lowering = of_part or _lowered(graph, target, settings, decisions, tuned)
    image, kernels = build_image(lowering, separate)
    steps = tuple(lowering.steps)
    lines = tuple(_line(i, step, kernels.get(i)) for i, step in enumerate(steps))
    if lowering.parts > 1:
        whole = lowering.whole.types[graph.inputs[0]].shape[0]
        each = f"for {whole // lowering.parts} of {whole} images each:"
        lines = (f"{lowering.parts} times, {each}", *lines)
    on_reference = tuple(s.label for s in steps if isinstance(s, ReferenceCall))
    trace = Trace({v: v for v in walk_values(graph)}, numbered(decisions.records))
    return LoweredProgram(own, image, lines, on_reference, steps, kernels, trace, lowering.parts)


def _lowered_for_part(
    graph: Graph,
    target: Target,
    settings: Settings,
    decisions: Decisions,
    tuned: ScheduleOf | None,
) -> tuple[Graph, Lowering] | None:
    """A part of the batch, where that is faster and kernels take all of it."""
    if not decisions.runs(DIVIDE):
        return None
    whole, part, before = batch_of(graph), best_part(graph), len(decisions.records)
    if whole is None or part is None:
        return None
    smaller, words = divided(graph, part), f"{part} of {whole} images at a time"
    if smaller is None or not decisions.allows(DIVIDE, words, "batch", graph.inputs):
        return None
    own, lowering = _lowered(smaller, target, settings, decisions, tuned)
    if not all(isinstance(step, Native) for step in lowering.steps):
        del decisions.records[before:]
        return None
    lowering.whole, lowering.parts = graph, whole // part
    return own, lowering


def _lowered(
    graph: Graph,
    target: Target,
    settings: Settings,
    decisions: Decisions,
    tuned: ScheduleOf | None,
) -> tuple[Graph, Lowering]:
    how = target.byte_products

    def in_bytes(graph: Graph) -> Graph:
        if not how:
            return graph
        return stored_in_bytes(graph, lambda graph, node: takes_bytes(graph, node, how))

    def in_halves(graph: Graph) -> Graph:
        return kept_in_halves(graph) if target.pairs else graph

    graph = in_bytes(graph)
    lowering = Lowering(in_halves(graph), target, settings, None, tuned)
    lowering.prepare_body = lambda body: in_halves(in_bytes(body))
    lowering.lower_body = _lower_all
    lowering.decisions = decisions
    _lower_all(lowering, decisions)
    return graph, lowering


def _lower_all(lowering: Lowering, decisions: Decisions) -> None:
    graph = lowering.graph
    groups = group_nodes(graph, _takes_epilogue, _joins, decisions)
    how = lowering.target.byte_products
    decided = decide_layouts(graph, groups, _wanted_layouts, prefers_blocked, decisions, how)
    decided.parts = parts_of_results(graph, decided)
    lowering.decide(decided)
    for group in groups:
        _lower_group(lowering, group)
    lowering.finish_outputs()


def _takes_epilogue(graph: Graph, node: Node) -> bool:
    rule = RULES.get(node.op.kind)
    return rule is not None and rule.epilogue(graph, node)


def _joins(graph: Graph, root: Node, value: str, node: Node) -> bool:
    """Whether `node` may join the group of `root` through `value`."""
    if is_elementwise(graph, root):
        return True
    rule = RULES[root.op.kind]
    return (rule.fits or fits_epilogue)(graph, value, node)


def _wanted_layouts(decided: Decided, node: Node) -> Layouts | None:
    rule = RULES.get(node.op.kind)
    if rule is None or rule.layouts is None or not is_static(decided.graph, node):
        return None
    return rule.layouts(decided, node)


def _lower_group(lowering: Lowering, group: Group) -> None:
    if _waits(lowering.graph, group):
        lowering.late[group.output] = group.root
        return
    given = {v for n in group.nodes for v in n.inputs if v is not None}
    static = not any(v in lowering.dynamic for v in given) and (
        all(lowering.is_static(n) for n in group.nodes) or _counts(lowering.graph, group)
    )
    why = _no_kernel(lowering, group) if static else MOVING
    if why:
        for node in group.nodes:
            if group.fused:  # each by itself
                why = _no_kernel(lowering, Group(node)) if static else MOVING
            if why:
                lowering.reference(node, why)
    for value in lowering.decided.row_major.intersection(v for n in group.nodes for v in n.outputs):
        if value in lowering.placed:
            lowering.placed[value] = [lowering.read_contiguous(value)]


def _waits(graph: Graph, group: Group) -> bool:
    """Whether it dequantises constants: products read these as they are."""
    node, fixed = group.root, all(v in graph.constants for v in group.root.inputs if v)
    waits = isinstance(node.op, DequantizeLinear) and fixed and not group.fused
    return waits and group.output not in graph.outputs


def _counts(graph: Graph, group: Group) -> bool:
    """Whether a rule counts what the group gives, the sizes of what it is given being known."""
    rule = RULES.get(group.root.op.kind)
    types = [t for t in graph.input_types(group.root) if t is not None]
    counts = rule is not None and rule.counts and len(group.nodes) == 1
    return counts and all(t.is_static for t in types)


def _no_kernel(lowering: Lowering, group: Group) -> str:
    """Why no kernel takes the group; nothing when its calls were made."""
    types = [t for n in group.nodes for t in lowering.graph.output_types(n)]
    if any(t.is_static and 0 in t.shape for t in types):
        return "nothing to compute"  # the reference knows the shape
    try:
        with lowering.attempt(group):
            _lower_natively(lowering, group)
    except NoKernel as why:
        return str(why)
    return ""


def _lower_natively(lowering: Lowering, group: Group) -> None:
    if is_elementwise(lowering.graph, group.root):
        lower_elementwise(lowering, group)
        return
    rule = RULES.get(group.root.op.kind)
    if rule is None:
        raise NoKernel(_unregistered(lowering.graph, group.root))
    rule.lower(lowering, group)


def _unregistered(graph: Graph, node: Node) -> str:
    op = node.op
    if isinstance(op, Parametrized):
        return "computed parameters that do not broadcast, or types of which it has no expression"
    if op.no_kernel or not isinstance(op, Elementwise):
        return op.no_kernel or "no lowering is registered"
    dtypes = {str(t.dtype) for t in (*graph.input_types(node), *graph.output_types(node)) if t}
    return f"no expression of it for {', '.join(sorted(dtypes))}"


def _line(number: int, step: Step, kernel: Kernel | None) -> str:
    if isinstance(step, CountedCall):
        most = step.rows.physical.shape[step.axis]
        return f"{number:4} {'counted':<18} {1:5} items  {step.label}: of {most} rows those found"
    if isinstance(step, BranchCall | LoopCall):
        kind = "branch" if isinstance(step, BranchCall) else "loop"
        count = sum(1 for _ in kernel_calls([step]))
        return f"{number:4} {kind:<18} {count:5} kernels {step.label}: native"
    if isinstance(step, ReferenceCall) or kernel is None:
        why = f": {step.why}" if isinstance(step, ReferenceCall) else ""
        return f"{number:4} reference  {step.label}{why}"
    how = f"; {step.schedule}" if step.schedule is not None else ""
    return f"{number:4} {kernel.name:<18} {kernel.items:5} items  {step.label}: {step.spec}{how}"
