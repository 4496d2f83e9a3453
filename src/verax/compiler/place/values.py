"""`Values`: where the values of a graph lie, in which layouts, and what brings them from one to
another."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels.sizes import Size
from verax.compiler.place.calls import Calls, Dynamic
from verax.compiler.place.copies import copy_view, view
from verax.compiler.place.storage import LANES, Buffer, MemorySpace, Physical, Placed, Pointer
from verax.compiler.place.weights import Weights
from verax.compiler.plan.growing import ROWS, growing_caches
from verax.compiler.plan.layouts import Decided, Layout, Pads, can_block, widest
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import TensorType

SCATTERS = ("ScatterElements", "ScatterND")


class Values:
    """Placements of a graph's values. Reading one in a layout in which it does not lie converts it,
    once.

    layouts: those that the plan decided. placed: by value, all its placements. dynamic: values
    whose sizes are known only when they run. centered: as integer kernels read them, by value and
    shift. overwritten: by value that nothing but a scatter reads, its output. late: dequantized
    constants, by value, computed if somebody reads them. io: the caller's arrays, inputs and then
    outputs.
    """

    def __init__(self, graph: Graph, calls: Calls, weights: Weights) -> None:
        self.graph, self._calls, self._weights = graph, calls, weights
        self.layouts = Decided(graph)
        self.placed: dict[str, list[Placed]] = {}
        self.dynamic: dict[str, Dynamic] = {}
        self.centered: dict[tuple[str, str], list[Placed]] = {}
        self.late: dict[str, Node] = {}
        self.io: list[Buffer] = []
        self._concatenated: dict[str, Placed] = {}  # results whose parts are made in their place
        self._output_buffers: dict[str, Buffer] = {}
        self.overwritten = {
            node.inputs[0] or "": node.outputs[0]
            for node in graph.nodes
            if node.op.kind in SCATTERS and _is_read_last(graph, node)
        }
        for value in (*graph.inputs, *graph.outputs):
            type_ = graph.types[value]
            nbytes = Physical(type_).nbytes if type_.is_static else 0
            self.io.append(Buffer(MemorySpace.io, nbytes, slot=len(self.io)))
        self._growing = growing_caches(graph)
        self._cache_buffers = {
            value: buffer for value, buffer in zip(graph.inputs, self.io) if value in self._growing
        }
        for value, buffer in zip(graph.inputs, self.io):
            is_cache = value in self._growing
            placed = self._in_cache(value) if is_cache else Placed(
                Physical(graph.types[value]), buffer
            )  # fmt: skip
            self.placed[value] = [placed]
        for value, buffer in zip(graph.outputs, self.io[len(graph.inputs) :]):
            if value not in self._growing:
                self._output_buffers[value] = buffer

    def find(self, value: str, layout: Layout, pads: Pads = ()) -> Placed | None:
        """A placement of `value` in `layout` whose borders are at least `pads`."""
        for placed in self.placed.get(value, ()):
            if placed.buffer in self._cache_buffers.values():
                continue  # its room is no border of zeros; who can read it asks for it
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
        with self._calls.making(1):  # who else reads it may have something to make
            return self._converted(value, layout, pads, bordered)

    def _converted(self, value: str, layout: Layout, pads: Pads, bordered: bool) -> Placed:
        constant = self.graph.constants.get(value)
        if constant is None and value in self.late and value not in self.placed:
            constant = self._computed(self.late[value])
        if constant is not None and value not in self.placed:
            if constant.dtype == object:
                self.placed[value] = [self._calls.sizes_tensor(constant)]
            else:
                self.placed[value] = [self._weights.constant(constant)]
            return self.read(value, layout, pads) if bordered else self.read_contiguous(value)
        sources = self.placed[value]
        type_ = self.graph.types[value]
        same = _same_bytes(sources, type_, layout) if not pads else None
        if same is not None and not self._wants_border(value, layout):
            self.placed[value].append(same)
            return same
        borders = widest(pads, self.layouts.borders.get((value, layout), ())) if bordered else ()
        target = self.allocate(Physical(type_, layout, borders))
        self._calls.copy(
            sources[0], target, f"{value}: to {layout}{' with border' if borders else ''}"
        )
        self.placed[value].append(target)
        return target

    def _computed(self, node: Node) -> np.ndarray:
        """What a node makes of constants."""
        types = self.graph.input_types(node), self.graph.output_types(node)
        arrays = [None if v is None else self.graph.constants[v] for v in node.inputs]
        return np.asarray(as_tuple(node.op.canonical(Evaluation(*types), *arrays))[0])

    def _wants_border(self, value: str, layout: Layout) -> bool:
        return any(a or b for a, b in self.layouts.borders.get((value, layout), ()))

    def write(self, value: str, layout: Layout = Layout.plain, bordered: bool = True) -> Placed:
        """Where the kernel that makes `value` is to write it: a new placement. bordered: False for
        kernels that write rows one behind the other; who wants a border gets a copy."""
        borders = self.layouts.borders.get((value, layout), ()) if bordered else ()
        physical = Physical(self.graph.types[value], layout, borders)
        if layout is Layout.blocked and (
            value in self.layouts.result_slices or value in self._concatenated
        ):
            placed = self._place_in_result(value)
        else:
            is_plain = layout is Layout.plain and not physical.has_border
            buffer = self._output_buffer(value) if is_plain else None
            placed = Placed(physical, buffer) if buffer else self.allocate(physical)
        self.placed.setdefault(value, []).append(placed)
        return placed

    def _place_in_result(self, value: str) -> Placed:
        """A blocked value that is part of a concatenation, or the result of one."""
        if value in self.layouts.result_slices:
            result, first = self.layouts.result_slices[value]
            return self._place_in_result(result).blocks(self.graph.types[value], first)
        if value not in self._concatenated:
            pads = self.layouts.borders.get((value, Layout.blocked), ())
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

    def scratch(self, nbytes: Size) -> Pointer:
        """Arena memory for one step."""
        return Pointer(Buffer(MemorySpace.arena, nbytes))  # type: ignore[arg-type]  # as shapes

    def write_contiguous(self, value: str) -> Placed:
        """Where `value` is to be written row-major without borders: a new placement."""
        physical = Physical(self.graph.types[value])
        buffer = self._output_buffer(value)
        placed = Placed(physical, buffer) if buffer else self.allocate(physical)
        self.placed.setdefault(value, []).append(placed)
        return placed

    def _output_buffer(self, value: str) -> Buffer | None:
        """The caller's array for an output, and for the data that it is scattered into."""
        return self._output_buffers.get(self.overwritten.get(value, value))

    def overwrite(self, node: Node) -> Placed | None:
        """The data of a scatter as its output, if it lies in a buffer that nothing else refers to;
        else None."""
        data, output = node.inputs[0] or "", node.outputs[0]
        sources = self.placed.get(data, ())
        if data not in self.overwritten or len(sources) != 1:
            return None
        physical, buffer = Physical(self.graph.types[output]), sources[0].buffer
        placed_buffers = (
            p.buffer for value, ps in self.placed.items() if value != data for p in ps
        )
        final = self._output_buffers.get(output)
        is_own = buffer is final or (final is None and buffer.space is MemorySpace.arena)
        if (
            sources[0] != Placed(physical, buffer)
            or not is_own
            or any(b is buffer for b in placed_buffers)
        ):
            return None
        self.placed[output] = [sources[0]]
        return sources[0]

    # --- caches that grow

    def _in_cache(self, value: str) -> Placed:
        """Past or present in the buffer of their cache."""
        cache, type_ = self._growing[value], self.graph.types[value]
        pads = cache.pads(type_.dims[ROWS])
        return Placed(Physical(type_, pads=pads), self._cache_buffers[cache.past])

    def append_to_cache(self, node: Node) -> Placed | None:
        """Where a concatenation has its first input already, because it is a cache with room behind
        it; None elsewhere."""
        value = node.outputs[0]
        cache = self._growing.get(value)
        if cache is None or value != cache.present or node.inputs[0] != cache.past:
            return None
        self.placed.setdefault(value, []).append(self._in_cache(value))
        return self.placed[value][-1]

    def read_cache(self, value: str) -> Placed | None:
        """`value` in the buffer of its cache, where its heads are as far apart as there is room."""
        for placed in self.placed.get(value, ()):
            if value in self._growing and placed.buffer in self._cache_buffers.values():
                return placed
        return None

    def _finish_caches(self) -> None:
        """Bring new rows that were made elsewhere into the buffers of their caches."""
        for value, cache in self._growing.items():
            if value == cache.present and self.read_cache(value) is None:
                source, target = view(self.read(value)), view(self._in_cache(value))
                box = [slice(0, n) for n in source.shape]
                box[ROWS] = slice(cache.length, source.shape[ROWS])  # type: ignore[arg-type]
                new, rows = source.subview(box), target.subview(box)
                with self._calls.making(1):
                    self._calls.call(
                        copy_view(new, rows), [new.pointer, rows.pointer], f"{value}: rows"
                    )

    def finish_outputs(self) -> None:
        """Bring every static graph output into the caller's array."""
        self._finish_caches()
        for value, buffer in self._output_buffers.items():
            if value in self.dynamic:
                continue
            if not any(p.buffer is buffer for p in self.placed.get(value, ())):
                target = Placed(Physical(self.graph.types[value]), buffer)
                source = self.placed.get(value) or [
                    self._weights.constant(self.graph.constants[value])
                ]
                self._calls.copy(source[0], target, f"{value}: output")


def _is_read_last(graph: Graph, node: Node) -> bool:
    """True if a node's first input is computed for this node alone."""
    data = node.inputs[0] or ""
    is_alone = graph.consumers[data] == (node,) and data not in graph.outputs
    return is_alone and data in graph.producers


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
