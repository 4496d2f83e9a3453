"""lower(graph): layouts, groups, kernel calls, binary. Importing it registers every rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.llvm.builder import Kernel
from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.kernels.registry import Spec
from verax.compiler.kernels.sizes import Size
from verax.compiler.kernels.target import Target
from verax.compiler.place import control  # noqa: F401  (each of these registers its operators)
from verax.compiler.place.binary.emit import build_binary
from verax.compiler.place.calls import (
    BranchCall,
    Calls,
    CountedCall,
    KernelCall,
    LoopCall,
    Native,
    ReferenceCall,
    RepeatCall,
    ScheduleOf,
    SizeCall,
    Step,
    kernel_calls,
)
from verax.compiler.place.convolution import (  # noqa: F401
    convolution,
    pooling,
    winograd,
)
from verax.compiler.place.convolution import strassen as strassen_convolution  # noqa: F401
from verax.compiler.place.elementwise import place_elementwise
from verax.compiler.place.integer import convolution as integer_convolution  # noqa: F401
from verax.compiler.place.integer import (  # noqa: F401
    dynamic_quantization,
    length,
    lookup,
    softmax,
)
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement import (  # noqa: F401
    indexing,
    movement,
    resize,
    sampling,
)
from verax.compiler.place.products import (  # noqa: F401
    attention,
    block_scaled,
    einsum,
    linear,
    recurrent,
    strassen,
)
from verax.compiler.place.reduce import (  # noqa: F401
    extremes,
    group_normalization,
    reduction,
    response,
    running,
)
from verax.compiler.place.rewriting import rewrite_for_target
from verax.compiler.place.schedule_words import schedule_words
from verax.compiler.place.search import (  # noqa: F401
    regions_of_interest,
    selection,
    suppression,
)
from verax.compiler.plan.batch import batch_of, best_part, divided
from verax.compiler.plan.choice import RULES, Choice, NoKernel, Planning, elements_of
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.graph_plan import LOOP, STORED, GraphPlan, plan_graph
from verax.compiler.plan.steps import DIVIDE, Decisions
from verax.ir.assumptions import NotOpenError, assumptions, require_nonzero, while_there_are
from verax.ir.graph import Graph, walk_values
from verax.records.trace import Trace, numbered
from verax.runtime.program_binary import ProgramBinary


@dataclasses.dataclass(frozen=True)
class LoweredProgram:
    """The binary of a program and what to tell people about it. graph: what was lowered, whose
    nodes steps on the reference count, and which is run for `chunk_count` parts of the batch.
    kernels: by index of the step. trace: the decisions that were made (`plan.steps`). choices: the
    plan that was placed, a line for each group."""

    graph: Graph
    binary: ProgramBinary
    lines: tuple[str, ...]
    on_reference: tuple[str, ...]
    steps: tuple[Step, ...]
    kernels: Mapping[int, Kernel]
    trace: Trace
    chunk_count: int = 1
    choices: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Of `on_reference`, each node with why no kernel takes it."""
        return tuple(f"{s.label}: {s.reason}" for s in self.steps if isinstance(s, ReferenceCall))


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
    lowering = of_part or _lowered(graph, target, settings, decisions, tuned)
    binary, kernels = build_binary(lowering, separate)
    steps = tuple(lowering.calls.steps)
    lines = tuple(_line(i, step, kernels.get(i)) for i, step in enumerate(steps))
    if lowering.chunk_count > 1:
        batch = lowering.full_graph.types[graph.inputs[0]].shape[0]
        per_chunk = f"for {batch // lowering.chunk_count} of {batch} images each:"
        lines = (f"{lowering.chunk_count} times, {per_chunk}", *lines)
    on_reference = tuple(s.label for s in steps if isinstance(s, ReferenceCall))
    trace = Trace({v: v for v in walk_values(graph)}, numbered(decisions.records))
    return LoweredProgram(
        lowering.graph,
        binary,
        lines,
        on_reference,
        steps,
        kernels,
        trace,
        lowering.chunk_count,
        lowering.choices,
    )


def _lowered_for_part(
    graph: Graph,
    target: Target,
    settings: Settings,
    decisions: Decisions,
    tuned: ScheduleOf | None,
) -> Lowering | None:
    """A part of the batch, where that is faster and kernels take all of it."""
    if assumptions() is not None or target.gpu or not decisions.runs(DIVIDE):
        return None
    batch, images, before = batch_of(graph), best_part(graph), len(decisions.records)
    if batch is None or images is None:
        return None
    smaller, words = divided(graph, images), f"{images} of {batch} images at a time"
    if smaller is None or not decisions.allows(DIVIDE, words, "batch", graph.inputs):
        return None
    lowering = _lowered(smaller, target, settings, decisions, tuned)
    if not all(isinstance(step, Native) for step in lowering.calls.steps):
        del decisions.records[before:]
        return None
    lowering.full_graph, lowering.chunk_count = graph, batch // images
    return lowering


def _lowered(
    graph: Graph,
    target: Target,
    settings: Settings,
    decisions: Decisions,
    tuned: ScheduleOf | None,
) -> Lowering:
    planning = Planning(graph, target, decisions, rewrite_for_target)
    plan = plan_graph(planning)
    lowering = Lowering(planning.graph, target, settings, Calls(target, tuned))
    lowering.place_plan = _place_plan
    lowering.choices = tuple(map(str, plan.steps))
    _place_plan(lowering, plan)
    lowering.restore_state()
    return lowering


def _place_plan(lowering: Lowering, plan: GraphPlan) -> None:
    """Give every step of a plan its calls."""
    lowering.values.layouts = plan.layouts
    for step in plan.steps:
        _place_step(lowering, step.group, step.choice)
    lowering.values.finish_outputs()


def _place_step(lowering: Lowering, group: Group, choice: Choice | NoKernel) -> None:
    """The calls of one group, which are skipped where it makes nothing."""
    before = len(lowering.calls.steps)
    elements = elements_of(lowering.graph, *group.nodes)
    with lowering.calls.making(elements):
        _place_calls(lowering, group, choice)
    _require_elements(lowering.graph, group, lowering.calls.steps[before:], elements)


def _require_elements(graph: Graph, group: Group, steps: Sequence[Step], elements: Size) -> None:
    """Kernels that make something of nothing, such as a sum over no rows, are not made for that;
    loops without lookups touch nothing where there is nothing."""
    if assumptions() is None or all(
        isinstance(step, KernelCall | SizeCall)
        and (isinstance(step, SizeCall) or _is_plain_loop(step.spec))
        for step in steps
    ):
        return
    if any(isinstance(s, BranchCall | LoopCall) for s in steps) and _counted(elements):
        raise NotOpenError(f"{group.label} has a body, and data decide what it makes")
    for value in {v for node in group.nodes for v in node.inputs if v is not None}:
        with while_there_are(elements):
            require_nonzero(graph.types[value].size)


def _counted(size: Size) -> bool:
    assumed = assumptions()
    return assumed is not None and assumed.is_counted(size)


def _is_plain_loop(spec: Spec) -> bool:
    return isinstance(spec, LoopSpec) and not any(a.lookups for a in spec.inputs)


def _place_calls(lowering: Lowering, group: Group, choice: Choice | NoKernel) -> None:
    if choice is STORED:
        lowering.values.late[group.output] = group.root
    elif isinstance(choice, NoKernel):
        lowering.reference(group.root, choice.reason)
    elif choice is LOOP:
        place_elementwise(lowering, group)
    else:
        RULES[group.root.op.kind].place_node(lowering, group, choice)
    for value in lowering.values.layouts.row_major.intersection(
        v for n in group.nodes for v in n.outputs
    ):
        if value in lowering.values.placed and lowering.values.read_cache(value) is None:
            lowering.values.placed[value] = [lowering.values.read_contiguous(value)]


def _line(index: int, step: Step, kernel: Kernel | None) -> str:
    if isinstance(step, SizeCall):
        return f"{index:4} {'counted':<18} {1:5} items  {step.label}: {step.symbol} <= {step.limit}"
    if isinstance(step, CountedCall):
        max_rows = step.rows.physical.shape[step.axis]
        return (
            f"{index:4} {'counted':<18} {1:5} items  {step.label}: of {max_rows} rows those found"
        )
    if isinstance(step, RepeatCall):
        times, calls = f"{index:4} {'repeat':<18} {step.times!s:>5} times ", step.body
        return f"{times}  {step.label}: {'; '.join(str(call.spec) for call in calls)}"
    if isinstance(step, BranchCall | LoopCall):
        kind = "branch" if isinstance(step, BranchCall) else "loop"
        count = sum(1 for _ in kernel_calls([step]))
        return f"{index:4} {kind:<18} {count:5} kernels {step.label}: native"
    if isinstance(step, ReferenceCall) or kernel is None:
        reason = f": {step.reason}" if isinstance(step, ReferenceCall) else ""
        return f"{index:4} reference  {step.label}{reason}"
    schedule = f"; {schedule_words(step.schedule)}" if step.schedule is not None else ""
    start = f"{index:4} {kernel.name:<18} {kernel.items!s:>5} items"
    return f"{start}  {step.label}: {step.spec}{schedule}"
