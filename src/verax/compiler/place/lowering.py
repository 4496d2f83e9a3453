"""Lowering a planned graph: its steps become kernel calls on placed values.

`Lowering` is the state that placing functions share: where values lie, which buffers exist, which
calls were made. What is computed how is the plan's (`plan.choice`); nothing here fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from verax.base.settings import Settings
from verax.compiler.kernels.registry import Schedule, Spec, refusal, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.place.copies import copies
from verax.compiler.place.memory import align
from verax.compiler.place.storage import LANES, Buffer, MemorySpace, Physical, Placed, Pointer
from verax.compiler.plan.graph_plan import GraphPlan
from verax.compiler.plan.layouts import Decided, Layout, Pads, can_block, widest
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import TensorType
from verax.numerics.expr import Expr


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """One call of a kernel, as data: what it computes, how, and its pointers in the order that the
    spec documents. The kernel is written when all calls are known."""

    spec: Spec
    schedule: Schedule
    args: tuple[Pointer, ...]
    label: str


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """A value whose shape only running can tell; it lives in Python."""

    name: str
    type: TensorType


@dataclasses.dataclass(frozen=True)
class ReferenceCall:
    """A node evaluated by its meaning, in Python."""

    node: int
    inputs: tuple[Placed | Dynamic | None, ...]
    outputs: tuple[Placed | Dynamic, ...]
    label: str
    reason: str


@dataclasses.dataclass(frozen=True)
class CountedCall:
    """The first rows along an axis of an array that kernels wrote, as many as they counted, as a
    value in Python."""

    rows: Placed
    count: Placed
    output: Dynamic
    label: str
    axis: int = 0


@dataclasses.dataclass(frozen=True)
class BranchCall:
    """One of two lists of calls, by a bool in memory. Where nothing may be done, `then` or `orelse`
    is None and `flag` is set."""

    condition: Pointer
    then: tuple[Native, ...] | None
    orelse: tuple[Native, ...] | None
    flag: Pointer
    label: str


@dataclasses.dataclass(frozen=True)
class LoopCall:
    """Calls that are repeated: at most `limit` (int64) and `max_trips` times, as long as `going`
    (bool) is true after a run and `first` before all. `trip_index` (int64) counts the runs. `flag`
    is set when the loop is not done after `max_trips` runs."""

    limit: Pointer | None
    first: Pointer | None
    max_trips: int
    trip_index: Pointer
    going: Pointer
    body: tuple[Native, ...]
    flag: Pointer
    label: str


Native = KernelCall | BranchCall | LoopCall
Step = Native | ReferenceCall | CountedCall
ScheduleOf = Callable[[Spec], Schedule | None]

LATER_BYTES = 1 << 16
"""Weights of fewer bytes are packed at once."""


class Lowering:
    """The program being made. See the module's docstring."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        settings: Settings,
        tuned: ScheduleOf | None = None,
    ) -> None:
        """tuned: the schedule that measuring found for a spec; None for those chosen by rule.

        place_plan(lowering, plan): gives every step of a plan its calls; set by `program`, as it
        knows all rules. Where the graph is that of a chunk of a batch, `full_graph` is that of
        all of it, and the chunk's program is run `chunk_count` times."""
        self.graph, self.target, self.settings = graph, target, settings
        self.full_graph, self.chunk_count = graph, 1
        self._tuned = tuned
        self.steps: list[Step] = []
        self.weights: list[tuple[Buffer, np.ndarray | Callable[[], np.ndarray]]] = []
        self.follow(Decided(graph))
        self.placed: dict[str, list[Placed]] = {}
        self._concatenated: dict[
            str, Placed
        ] = {}  # concatenations whose parts are made in their place
        self.dynamic: dict[str, Dynamic] = {}
        # values as integer kernels read them
        self.centred: dict[tuple[str, str], list[Placed]] = {}
        self.late: dict[str, Node] = {}  # what is computed from constants if somebody reads it
        self.io: list[Buffer] = []
        self._node_indices = {id(node): i for i, node in enumerate(graph.nodes)}
        self._buffers: dict[Hashable, list[tuple[Buffer, np.ndarray]]] = {}
        self._output_buffers: dict[str, Buffer] = {}
        for value in (*graph.inputs, *graph.outputs):
            type_ = graph.types[value]
            nbytes = Physical(type_).nbytes if type_.is_static else 0
            self.io.append(Buffer(MemorySpace.io, nbytes, slot=len(self.io)))
        self.checks: list[str] = []
        self._status = Buffer(MemorySpace.arena, 0, offset=0)
        self.place_plan: Callable[[Lowering, GraphPlan], None] = lambda lowering, plan: None
        for value, buffer in zip(graph.inputs, self.io):
            self.placed[value] = [Placed(Physical(graph.types[value]), buffer)]
        for value, buffer in zip(graph.outputs, self.io[len(graph.inputs) :]):
            self._output_buffers[value] = buffer

    def follow(self, layouts: Decided) -> None:
        """Let values lie as the plan has them."""
        self.decided = layouts
        self.blocked, self.borders = layouts.blocked, layouts.borders

    def inside(self, graph: Graph, plan: GraphPlan) -> Lowering:
        """The lowering of a body, placed; its weights and checks are this program's."""
        inner = Lowering(graph, self.target, self.settings, self._tuned)
        inner.weights, inner._buffers = self.weights, self._buffers
        inner.checks, inner._status = self.checks, self._status
        inner.place_plan = self.place_plan
        self.place_plan(inner, plan)
        return inner

    # --- where values lie

    def is_static(self, node: Node) -> bool:
        return is_static(self.graph, node)

    def find(self, value: str, layout: Layout, pads: Pads = ()) -> Placed | None:
        """A placement of `value` in `layout` whose borders are at least `pads`."""
        for placed in self.placed.get(value, ()):
            have = placed.physical.borders
            enough = all(
                a >= c and b >= d for (a, b), (c, d) in zip(have, pads or ((0, 0),) * len(have))
            )
            if placed.physical.layout is layout and enough:
                return placed
        return None

    def read(self, value: str, layout: Layout = Layout.plain, pads: Pads = ()) -> Placed:
        """`value` in `layout` with zero borders of at least `pads`, converted if need be."""
        placed = self.find(value, layout, pads)
        return placed or self._convert(value, layout, pads)

    def find_any(self, value: str, *layouts: Layout) -> Placed:
        """Where `value` lies in the first of `layouts` that there is; plain where there is none."""
        candidates = (self.find(value, layout) for layout in layouts)
        return next(filter(None, candidates), None) or self.read(value)

    def read_contiguous(self, value: str) -> Placed:
        """`value` row-major without borders, as NumPy and reshapes want it."""
        for placed in self.placed.get(value, ()):
            if placed.physical.layout is Layout.plain and not placed.physical.has_border:
                return placed
        return self._convert(value, Layout.plain, (), bordered=False)

    def _convert(self, value: str, layout: Layout, pads: Pads, bordered: bool = True) -> Placed:
        constant = self.graph.constants.get(value)
        if constant is None and value in self.late and value not in self.placed:
            constant = self._computed(self.late[value])
        if constant is not None and value not in self.placed:
            self.placed[value] = [self.constant(constant)]
            return self.read(value, layout, pads) if bordered else self.read_contiguous(value)
        sources = self.placed[value]
        type_ = self.graph.types[value]
        same = _same_bytes(sources, type_, layout) if not pads else None
        if same is not None and not self._wants_border(value, layout):
            self.placed[value].append(same)
            return same
        borders = widest(pads, self.borders.get((value, layout), ())) if bordered else ()
        target = self.allocate(Physical(type_, layout, borders))
        self.copy(sources[0], target, f"{value}: to {layout}{' with border' if borders else ''}")
        self.placed[value].append(target)
        return target

    def _computed(self, node: Node) -> np.ndarray:
        """What a node makes of constants."""
        types = self.graph.input_types(node), self.graph.output_types(node)
        arrays = [None if v is None else self.graph.constants[v] for v in node.inputs]
        return np.asarray(as_tuple(node.op.canonical(Evaluation(*types), *arrays))[0])

    def _wants_border(self, value: str, layout: Layout) -> bool:
        return any(a or b for a, b in self.borders.get((value, layout), ()))

    def write(self, value: str, layout: Layout = Layout.plain) -> Placed:
        """Where the kernel that makes `value` is to write it: a new placement."""
        physical = Physical(self.graph.types[value], layout, self.borders.get((value, layout), ()))
        if layout is Layout.blocked and (
            value in self.decided.result_slices or value in self._concatenated
        ):
            placed = self._place_in_result(value)
        elif layout is Layout.plain and not physical.has_border and value in self._output_buffers:
            placed = Placed(physical, self._output_buffers[value])
        else:
            placed = self.allocate(physical)
        self.placed.setdefault(value, []).append(placed)
        return placed

    def _place_in_result(self, value: str) -> Placed:
        """A blocked value that is part of a concatenation, or the result of one."""
        if value in self.decided.result_slices:
            result, first = self.decided.result_slices[value]
            return self._place_in_result(result).blocks(self.graph.types[value], first)
        if value not in self._concatenated:
            pads = self.borders.get((value, Layout.blocked), ())
            self._concatenated[value] = self.allocate(
                Physical(self.graph.types[value], Layout.blocked, pads)
            )
        return self._concatenated[value]

    def alias(self, value: str, source: str) -> None:
        """`value` is `source` with other dimensions: the same bytes, row-major."""
        placed = self.read_contiguous(source)
        self.placed[value] = [
            dataclasses.replace(placed, physical=Physical(self.graph.types[value]))
        ]

    def allocate(self, physical: Physical) -> Placed:
        """A new arena buffer for `physical`."""
        buffer = Buffer(MemorySpace.arena, physical.nbytes, geometry=physical.geometry)
        return Placed(physical, buffer)

    def scratch(self, nbytes: int) -> Pointer:
        """Arena memory for one step."""
        return Pointer(Buffer(MemorySpace.arena, nbytes))

    def flag(self, label: str) -> Pointer:
        """Where a kernel reports a bad index: an int32 of the status block, read after each run."""
        self.checks.append(label)
        return Pointer(self._status, 4 * (len(self.checks) - 1))

    @property
    def status_bytes(self) -> int:
        """Size of the status block at the start of the arena."""
        return align(4 * len(self.checks))

    def constant(self, array: np.ndarray, physical: Physical | None = None) -> Placed:
        """An array kept in the weights; equal arrays are kept once."""
        # ascontiguousarray gives () an axis
        array = np.asarray(array, order="C")
        return Placed(physical or Physical(TensorType.of(array)), self._weight_buffer(array))

    def packed(self, array: np.ndarray) -> Pointer:
        """Packed weights, in whatever order the kernel reads them."""
        return Pointer(self._weight_buffer(np.ascontiguousarray(array)))

    def packed_later(
        self, source: np.ndarray, packing: Hashable, nbytes: int, pack: Callable[[], np.ndarray]
    ) -> Pointer:
        """What `pack` will make of `source`, `nbytes` of it, when the weights are laid out: then
        LLVM is at work beside it, and no second copy of all weights is held.

        packing: decides the packed content together with `source`.
        """
        if nbytes < LATER_BYTES:
            return self.packed(pack())
        return Pointer(self._weight_buffer(np.asarray(source, order="C"), packing, nbytes, pack))

    def _weight_buffer(
        self,
        array: np.ndarray,
        packing: Hashable = None,
        nbytes: int | None = None,
        pack: Callable[[], np.ndarray] | None = None,
    ) -> Buffer:
        content = array.reshape(-1).view(np.uint8)
        key = (packing, array.nbytes, content[:4096].tobytes())
        alike = self._buffers.setdefault(key, [])
        for buffer, cached_content in alike:
            if np.array_equal(content, cached_content):
                return buffer
        buffer = Buffer(MemorySpace.weights, array.nbytes if nbytes is None else nbytes)
        alike.append((buffer, content))
        self.weights.append((buffer, pack or array))
        return buffer

    # --- what happens

    def schedule(self, spec: Spec) -> Schedule:
        """The schedule that a call of `spec` gets."""
        tuned = None if self._tuned is None else self._tuned(spec)
        return schedules(spec, self.target)[0] if tuned is None else tuned

    def call(
        self,
        spec: Spec,
        args: Iterable[Pointer | Placed],
        label: str,
        schedule: Schedule = None,
    ) -> None:
        """Append a kernel call; a Placed argument means its first logical element.

        schedule: by default the one that rules choose.
        """
        reason = refusal(spec, self.target)
        assert not reason, f"{label} was planned: {reason}"
        pointers = tuple(a.pointer if isinstance(a, Placed) else a for a in args)
        selected = self.schedule(spec) if schedule is None else schedule
        self.steps.append(KernelCall(spec, selected, pointers, label))

    def copy(self, source: Placed, target: Placed, label: str, expr: Expr | None = None) -> None:
        """Copy a value from one layout to another. expr: what becomes of an element (input 0)."""
        for spec in copies(source.physical, target.physical, expr):
            self.call(spec, (source, target), label)

    def reference(self, node: Node, reason: str) -> None:
        """Append a call of the node's reference in Python; `reason`: why it has no kernel."""
        inputs: list[Placed | Dynamic | None] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
            elif value in self.dynamic:
                inputs.append(self.dynamic[value])
            else:
                inputs.append(self.read_contiguous(value))
        outputs: list[Placed | Dynamic] = []
        for value in node.outputs:
            type_ = self.graph.types[value]
            if type_.is_static:
                outputs.append(self.write_contiguous(value))
            else:
                self.dynamic[value] = Dynamic(value, type_)
                outputs.append(self.dynamic[value])
        index = self._node_indices[id(node)]
        self.steps.append(ReferenceCall(index, tuple(inputs), tuple(outputs), node.place, reason))

    def counted(self, value: str, rows: Placed, count: Placed, label: str, axis: int = 0) -> None:
        """`value` is the first rows along `axis` of `rows`, as many as `count` (int64 [1]) holds by
        then."""
        self.dynamic[value] = Dynamic(value, self.graph.types[value])
        self.steps.append(CountedCall(rows, count, self.dynamic[value], label, axis))

    def write_contiguous(self, value: str) -> Placed:
        """Where `value` is to be written row-major without borders: a new placement."""
        physical = Physical(self.graph.types[value])
        buffer = self._output_buffers.get(value)
        placed = Placed(physical, buffer) if buffer else self.allocate(physical)
        self.placed.setdefault(value, []).append(placed)
        return placed

    def finish_outputs(self) -> None:
        """Bring every static graph output into the caller's array."""
        for value, buffer in self._output_buffers.items():
            if value in self.dynamic:
                continue
            if not any(p.buffer is buffer for p in self.placed.get(value, ())):
                target = Placed(Physical(self.graph.types[value]), buffer)
                source = self.placed.get(value) or [self.constant(self.graph.constants[value])]
                self.copy(source[0], target, f"{value}: output")


def kernel_calls(steps: Iterable[Step]) -> Iterator[KernelCall]:
    """Every kernel call, those inside of branches and loops too, in order."""
    for step in steps:
        if isinstance(step, KernelCall):
            yield step
        elif isinstance(step, BranchCall):
            yield from kernel_calls((*(step.then or ()), *(step.orelse or ())))
        elif isinstance(step, LoopCall):
            yield from kernel_calls(step.body)


def _same_bytes(sources: Sequence[Placed], type_: TensorType, layout: Layout) -> Placed | None:
    """A placement that is also one in `layout`: channels fill whole blocks, one pixel."""
    for placed in sources:
        physical = placed.physical
        if (
            can_block(type_)
            and type_.shape[1] % LANES == 0
            and all(n == 1 for n in type_.shape[2:])
            and not physical.has_border
        ):
            return dataclasses.replace(placed, physical=Physical(type_, layout))
    return None


def is_static(graph: Graph, node: Node) -> bool:
    """Whether all sizes of the node's inputs and outputs are known."""
    types = [t for t in graph.input_types(node) if t is not None]
    return all(t.is_static for t in (*types, *graph.output_types(node)))
