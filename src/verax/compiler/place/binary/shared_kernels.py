"""Calls of kernels that differ in sizes alone share one, which reads them from a table of the call.

A kernel for known sizes is made for each size, which takes 10 ms or so. A program of a few hundred
kernels has each of them for its own; of one that calls thousands, all but the largest are shared.
Kernels that read sizes at run time give the same bits, so that this decides speed alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

from verax.compiler.kernels.convolution.pooling import PoolSpec
from verax.compiler.kernels.convolution.schedule import (
    ConvSchedule,
    flattened,
    written_densely,
)
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.winograd import WinogradOutput
from verax.compiler.kernels.convolution.winograd_scales import WinogradScales
from verax.compiler.kernels.convolution.winograd_tiles import WinogradInput
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I8, I64, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.thread_pool import i64
from verax.compiler.kernels.loops.loop import LoopSpec, normalized
from verax.compiler.kernels.products.gemm import GemmSpec, PackSpec
from verax.compiler.kernels.products.strassen import written_in_line
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.reduce.running import RunningSpec
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.registry import Schedule, Spec, with_known_sizes
from verax.compiler.kernels.sizes import (
    Size,
    dims_of,
    entry,
    with_replaced_sizes,
    with_sizes,
)
from verax.compiler.kernels.target import LANES, Target
from verax.compiler.place.binary.assembly import Assembly
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.size_table import SizeTable
from verax.compiler.place.storage import Buffer
from verax.ir.assumptions import Assumptions, assumed_sizes, assuming, assumptions
from verax.ir.dim import Dim, evaluated, same
from verax.ir.dim_forms import substitute as substitute_dims
from verax.numerics.expr import Const, Expr, RunTime, TracingArith, nodes, substitute

M = TracingArith()
OWN_KERNELS = 256
"""The kernels with the most work that keep code of their own: as many as nearly all networks have
(ResNet-50 has 70), so that only programs of more are compiled so."""
OWN_OPEN_KERNELS = 128
"""As many of a program of open sizes, which take twice as long to make; before that, those share
one that would have the same schedule."""
FEWEST_CALLERS = 2
"""Specs that are worth a kernel that reads sizes."""

Key = tuple[Spec, Schedule]


@dataclasses.dataclass(frozen=True)
class SharedKernel:
    """The spec of a kernel that reads sizes "d0", "d1", ..., its schedule, and what the sizes are
    in one call."""

    spec: Spec
    schedule: Schedule
    sizes: tuple[Size, ...]


def shared_kernels(calls: Iterable[KernelCall], target: Target) -> dict[Key, SharedKernel]:
    """What takes the place of the specs of some of these calls, by spec and schedule. Nothing on
    GPUs, whose kernels read one table."""
    callers = Counter((call.spec, call.schedule) for call in calls)
    is_open = assumptions() is not None
    if target.gpu or not (is_open or len(callers) > OWN_KERNELS):
        return {}
    typical = assumed_sizes()
    candidates = [key for key in callers if _can_share(key[0])]
    candidates.sort(key=lambda key: -_work(with_sizes(key[0], typical)) * callers[key])
    shared: dict[Key, SharedKernel] = {}
    if is_open:
        shared = _shared(candidates, target, _alike)
    own = OWN_OPEN_KERNELS if is_open else OWN_KERNELS
    remaining = [key for key in candidates if key not in shared]
    shared_count = len({(s.spec, s.schedule) for s in shared.values()})
    own -= len(callers) - len(candidates) + shared_count
    remaining = [key for key in remaining if isinstance(key[0], _FAMILIES)]
    return shared | _shared(remaining[max(own, 0) :], target, _order)


def _shared(
    keys: Sequence[Key], target: Target, order: Callable[[Spec, Schedule], object]
) -> dict[Key, SharedKernel]:
    """One kernel for those of `keys` that differ in sizes alone, and of which `order` is equal. It
    has the schedule of the first."""
    groups: defaultdict[tuple[Spec, object], list[tuple[Key, tuple[Size, ...]]]]
    groups = defaultdict(list)
    for key in keys:
        if all(dim.lowest() is not None for dim in dims_of(key[0])):
            opened = _skeleton(*key, target)
            if opened is not None:
                with assuming(None):  # what is alike by the sizes of now need not stay so
                    alike = order(*key)
                groups[opened[0], alike].append((key, opened[1]))
    shared: dict[Key, SharedKernel] = {}
    for (skeleton, _), members in groups.items():
        if len(members) >= FEWEST_CALLERS:
            with assuming(None):  # equal for all sizes, not for those there are now
                spec, columns = _with_common_sizes(skeleton, [sizes for _, sizes in members])
            shared |= {
                key: SharedKernel(
                    spec, members[0][0][1], tuple(sizes[i] + shift for i, shift in columns)
                )
                for key, sizes in members
            }
    return shared


class CallSizes:
    """The kernels of calls, and what those that are shared read in each call: from one array of
    all sizes, which is part of the code, or if some are open from the program's table."""

    def __init__(
        self, calls: Iterable[KernelCall], target: Target, table: SizeTable | None
    ) -> None:
        self._shared = shared_kernels(calls, target)
        self._starts: dict[tuple[Size, ...], int] = {}
        self._blocks: dict[tuple[Size, ...], Buffer] = {}
        self._sizes: list[int] = []
        self._array: ir.GlobalVariable | None = None
        for sizes in dict.fromkeys(shared.sizes for shared in self._shared.values()):
            numbers = [n for n in sizes if isinstance(n, int)]
            if len(numbers) == len(sizes):
                self._starts[sizes] = len(self._sizes)
                self._sizes += numbers
            else:
                assert table is not None, "sizes are open only where there is a table"
                self._blocks[sizes] = table.block(sizes)

    def kernel(self, assembly: Assembly, call: KernelCall) -> Kernel:
        """The kernel that this call is made of; items and work are the call's."""
        shared = self._shared.get((call.spec, call.schedule))
        if shared is None:
            return assembly.kernel(call.spec, call.schedule)
        kernel = assembly.kernel(shared.spec, shared.schedule)
        sizes = {f"d{i}": size for i, size in enumerate(shared.sizes)}
        items, flops, bytes_ = (
            substitute_dims(size, sizes) for size in (kernel.items, kernel.flops, kernel.bytes)
        )
        return dataclasses.replace(kernel, items=items, flops=flops, bytes=bytes_)

    def address(
        self, module: ModuleBuilder, b: ir.IRBuilder, call: KernelCall, table: ir.Value | None
    ) -> ir.Value | None:
        """Where the sizes of a call lie, in the one module that calls. table: where the program's
        table lies, which all other kernels read."""
        shared = self._shared.get((call.spec, call.schedule))
        if shared is None:
            return table
        if shared.sizes in self._blocks:
            assert table is not None, "sizes are open only where there is a table"
            return b.gep(table, [i64(self._blocks[shared.sizes].offset)], source_etype=I8)
        if self._array is None:
            kind = ir.ArrayType(I64, len(self._sizes))
            self._array = module.constant("call_sizes", ir.Constant(kind, self._sizes))
        return b.gep(self._array, [i64(self._starts[shared.sizes])], source_etype=I64)


_FAMILIES = (LoopSpec, ReduceSpec, RunningSpec, GemmSpec, PackSpec, ConvSpec, PoolSpec)
"""Kernels that read most of their sizes at run time."""
_WINOGRAD = (WinogradInput, WinogradOutput, WinogradScales)


def _can_share(spec: Spec) -> bool:
    """Whether kernels of its kind may share one. Strassen's and Winograd's lay out what they hand
    to one another by whether sizes are known, and stay what they are."""
    if isinstance(spec, StrassenSpec):
        return not isinstance(spec.m, int)
    if isinstance(spec, _WINOGRAD):
        tiling = spec.source.tiling if isinstance(spec, WinogradScales) else spec.tiling
        return not (isinstance(tiling.down, int) and isinstance(tiling.batch, int))
    return isinstance(spec, _FAMILIES)


def _order(spec: Spec, schedule: Schedule) -> object:
    """What has to be the same in all that share a kernel, which has the schedule of the one with
    the most work: in which order weights lie."""
    if not isinstance(schedule, ConvSchedule):
        return schedule
    return schedule.blocks, schedule.spare, schedule.pass_blocks


def _alike(spec: Spec, schedule: Schedule) -> object:
    """What has to be the same for a shared kernel to be as fast as one of its own: the tile, and
    whether rows of an image are one. Of Strassen's all of the schedule, which says how large the
    room for sums is."""
    if isinstance(spec, StrassenSpec):
        return schedule, spec.image is None or written_in_line(spec.image, spec.epilogue)
    if isinstance(spec, ConvSpec) and isinstance(schedule, ConvSchedule):
        lies = [(flattened(spec, phase), written_densely(spec, phase)) for phase in spec.phases()]
        return schedule, tuple(lies)
    return schedule


def _work(spec: Any) -> int:
    """About how much a kernel does: operations, or bytes that it touches."""
    if isinstance(spec, PackSpec):
        return int(spec.product.packed_elements)
    if isinstance(spec, GemmSpec):
        spec = spec.convolution()
    if isinstance(spec, StrassenSpec):
        return int(spec.full_product.convolution().flops)
    if isinstance(spec, ConvSpec):
        return int(spec.flops)
    if isinstance(spec, WinogradScales):
        spec = spec.source
    if isinstance(spec, WinogradInput | WinogradOutput):
        channels = spec.channels if isinstance(spec, WinogradInput) else spec.filters
        return int(spec.tiling.elements(channels))
    if isinstance(spec, PoolSpec):
        outputs: int = math.prod((spec.batch, spec.channels, *spec.output))  # type: ignore[arg-type]
        return outputs * math.prod(spec.kernel)
    if isinstance(spec, RunningSpec):
        return math.prod(spec.outer) * spec.length  # type: ignore[return-value]
    return int(spec.bytes) * (1 + spec.operations)


def _skeleton(
    spec: Any, schedule: Schedule, target: Target
) -> tuple[Spec, tuple[Size, ...]] | None:
    """The spec with the size "d0", "d1", ... for each of its sizes that kernels can read at run
    time, and these sizes. Zeros, ones and negative strides stay: they decide what kernels do. None
    where nothing is read."""
    sizes: list[Size] = []
    blocks = _opened_blocks(spec, schedule, sizes)
    if not blocks and isinstance(spec, (StrassenSpec, *_WINOGRAD)):
        return None
    closed = _with_channels(spec, dict.fromkeys(blocks, 0)) if blocks else spec
    if isinstance(closed, LoopSpec):
        with assuming(None):  # as its emitter does: no size is asked for
            closed = normalized(closed)
    opened = _opened(closed, False, sizes)
    has_spare = isinstance(schedule, ConvSchedule) and schedule.spare > 0
    if isinstance(opened, GemmSpec) and has_spare and isinstance(spec.n, int):
        opened = dataclasses.replace(opened, n=spec.n)  # whose last lanes are not computed
    typical = assumed_sizes()
    assumed = {f"d{i}": evaluated(size, typical) for i, size in enumerate(sizes)}
    with assuming(Assumptions(assumed)):
        resolved = opened if blocks else with_known_sizes(opened, target)
    return _with_channels(resolved, blocks) if blocks else resolved, tuple(sizes)


def _opened_blocks(spec: Any, schedule: Schedule, sizes: list[Size]) -> dict[str, Size]:
    """Numbers of channels, by the field's name, that are multiples of what the kernel takes at a
    time, as so many of a size that is read; these are appended to `sizes`. Nothing where one is no
    such multiple."""
    steps: dict[str, int] = {}
    if isinstance(spec, ConvSpec) and isinstance(schedule, ConvSchedule):
        is_plain = spec.groups == 1 and spec.step == 1 and not spec.paired
        if is_plain and not (schedule.pass_blocks or schedule.spare):
            steps = {"channels": LANES, "filters": LANES * schedule.blocks}
    elif isinstance(spec, StrassenSpec) and isinstance(schedule, ConvSchedule):
        if not schedule.spare:
            steps = {"k": 2 * LANES, "n": 2 * LANES * schedule.blocks}
    elif isinstance(spec, WinogradScales | WinogradInput | WinogradOutput):
        source = spec.source if not isinstance(spec, WinogradInput) else spec
        if source is not None and source.groups == 1:
            steps = {"channels": LANES, "filters": LANES}
    numbers = {name: _channels(spec, name) for name in steps}
    stated = {name: n for name, n in numbers.items() if n is not None}
    if not all(isinstance(n, int) and n and n % steps[name] == 0 for name, n in stated.items()):
        return {}
    opened: dict[str, Size] = {}
    for name, n in stated.items():
        sizes.append(n // steps[name])
        opened[name] = steps[name] * entry(len(sizes) - 1)
    return opened


def _channels(spec: Any, name: str) -> Size | None:
    """The number of channels, or of filters, that a spec or the transform before it has."""
    if hasattr(spec, name):
        return getattr(spec, name)  # type: ignore[no-any-return]
    source = getattr(spec, "source", None)
    return None if source is None else getattr(source, name, None)


def _with_channels(spec: Any, channels: Mapping[str, Size]) -> Any:
    """A spec, and the transform before it, with other numbers of channels."""
    fields = {f.name for f in dataclasses.fields(spec)}
    changed: dict[str, Any] = {name: n for name, n in channels.items() if name in fields}
    if isinstance(spec, WinogradOutput | WinogradScales) and spec.source is not None:
        changed["source"] = _with_channels(spec.source, channels)
    return dataclasses.replace(spec, **changed)


def _opened(data: Any, is_size: bool, sizes: list[Size]) -> Any:
    """`data` with a symbol for each size of at least 2, which is appended to `sizes`."""
    if isinstance(data, Dim) or (is_size and isinstance(data, int)):
        if isinstance(data, int) and data < 2:
            return data
        sizes.append(data)
        return entry(len(sizes) - 1)
    if isinstance(data, Expr):
        return _opened_expression(data, _length_in, sizes)
    if isinstance(data, tuple):
        return tuple([_opened(item, is_size, sizes) for item in data])
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        changed = {}
        for name, holds_sizes in _fields(type(data)):
            before = getattr(data, name)
            if isinstance(data, Stage) and name == "finish" and before is not None:
                after = _opened_expression(before, _length_of_mean, sizes)
            else:
                after = _opened(before, holds_sizes, sizes)
            if after is not before:
                changed[name] = after
        return dataclasses.replace(data, **changed) if changed else data
    return data


def _opened_expression(
    expr: Expr, length: Callable[[Const], int | None], sizes: list[Size]
) -> Expr:
    """With what is read for the constants that `length` takes for a number of elements, or for the
    reciprocal of one, rounded once."""
    read: dict[Expr, Expr] = {}
    for node in nodes(expr):
        if isinstance(node, RunTime):
            sizes.append(node.value)
            read[node] = RunTime(entry(len(sizes) - 1), node.dtype)
        elif isinstance(node, Const) and (count := length(node)):
            sizes.append(count)
            symbol = entry(len(sizes) - 1)
            read[node] = RunTime(symbol, node.dtype)
            if node.value < 1:
                quotient = M.div(M.const(1.0, "float64"), RunTime(symbol, "float64"))
                is_wide = node.dtype == "float64"
                read[node] = quotient if is_wide else M.convert(quotient, node.dtype)
    return substitute(expr, read) if read else expr


def _length_in(node: Const) -> int | None:
    """A whole number: a mean is a sum divided by one."""
    if not isinstance(node.value, float) or not 2 <= node.value < MAX_EXACT:
        return None
    return int(node.value) if node.value.is_integer() else None


def _length_of_mean(node: Const) -> int | None:
    """Behind the sum of a row also the reciprocal of one."""
    if node.dtype not in ("float32", "float64") or not 1 / MAX_EXACT < node.value < 1:
        return _length_in(node)
    length = round(1 / node.value)
    return length if Const(1 / length, node.dtype) is node else None


MAX_EXACT = 1 << 24
"""Whole numbers below are exact in float32."""


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """The fields of a dataclass, and whether each holds sizes."""
    hints = get_type_hints(kind, localns={Dim.__name__: Dim})
    return tuple((f.name, _mentions_dim(hints[f.name])) for f in dataclasses.fields(kind))


def _mentions_dim(hint: Any) -> bool:
    return hint is Dim or any(map(_mentions_dim, getattr(hint, "__args__", ())))


def _with_common_sizes(
    skeleton: Any, members: Sequence[tuple[Size, ...]]
) -> tuple[Spec, tuple[tuple[int, int], ...]]:
    """The spec that serves all `members`, sizes of a skeleton each, and which of those sizes it
    reads, each with how many more are written there: what is read is taken to be 1 at least, and
    a size may be none. What is the same number in all is one; what is always the same as another
    size, or a multiple of one, or the product of two, is that: kernels look at whether strides
    fit."""
    read: list[tuple[int, int]] = []
    sizes: dict[str, Size] = {}
    expressions: dict[tuple[Size, ...], Size] = {}
    for i, column in enumerate(zip(*members)):
        if all(same(n, column[0]) for n in column) and isinstance(column[0], int):
            sizes[f"d{i}"] = column[0]
            continue
        if column not in expressions:
            expression = _product(column, expressions)
            if expression is None:
                shift = max(0, 1 - min(map(_lowest, column)))
                expression = entry(len(read)) - shift
                read.append((i, shift))
            expressions[column] = expression
        sizes[f"d{i}"] = expressions[column]
    return with_replaced_sizes(skeleton, lambda size: substitute_dims(size, sizes)), tuple(read)


def _lowest(size: Size) -> int:
    lowest = size if isinstance(size, int) else size.lowest()
    assert lowest is not None, "others are not shared"
    return lowest


def _product(column: Sequence[Size], expressions: Mapping[tuple[Size, ...], Size]) -> Size | None:
    """An earlier column times another one, or times a number; None where that is not `column`."""
    for factor, size in expressions.items():
        quotients = _quotients(column, factor)
        if quotients is None:
            continue
        if all(same(n, quotients[0]) for n in quotients) and isinstance(quotients[0], int):
            return size * quotients[0]
        if quotients in expressions:
            return size * expressions[quotients]
    return None


def _quotients(column: Sequence[Size], divisor: Sequence[Size]) -> tuple[Size, ...] | None:
    quotients = tuple(_quotient(n, m) for n, m in zip(column, divisor, strict=True))
    is_exact = all(same(q * m, n) for q, n, m in zip(quotients, column, divisor, strict=True))
    return quotients if is_exact else None


def _quotient(size: Size, divisor: Size) -> Size:
    """size // divisor; a number where the one is so many times the other, term by term."""
    if isinstance(size, Dim) and isinstance(divisor, Dim):
        ratio = size.terms[0][1] // divisor.terms[0][1]
        if same(divisor * ratio, size):
            return ratio
    return size // divisor
