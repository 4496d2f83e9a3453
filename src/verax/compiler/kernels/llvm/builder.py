"""The emitter every kernel is written with: a module of kernels, and one function at a time.

`ModuleBuilder` collects the kernels of one network; `FunctionBuilder` writes one of them as LLVM
IR. Loops carry their values in SSA phis, there is no stack memory, and what is written is what
runs: LLVM's IR passes are not used, only its code generator. No fast-math flag is ever set.

ABI of every kernel: `void name(ptr args, i64 begin, i64 end)`. `args` is an array of pointers, each
to the first logical element of a tensor; the work items [begin, end) are executed. On a GPU a
thread executes one item (`gpu`). Shapes and strides are counted in elements. They are constants, or
entries of a table of dims (`sizes`): a kernel that reads some has one pointer more, behind the
tensors, to an array of i64.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.emitted_loop import EmittedLoop, Index
from verax.compiler.kernels.sizes import Size, index_of, maximum, minimum
from verax.compiler.kernels.target import LANES, Target
from verax.ir.dim import Atom, Dim, Division, Symbol
from verax.numerics.formats import NARROW

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, PTR, VOID = ir.FloatType(), ir.PointerType(), ir.VoidType()
KERNEL_TYPE = ir.FunctionType(VOID, [PTR, I64, I64])

ELEMENT_TYPES: dict[str, ir.Type] = {
    "float32": F32,
    "float64": ir.DoubleType(),
    "float16": ir.HalfType(),
    "bfloat16": ir.IntType(16),  # llvmlite has no bfloat: its bits
    **{f"{sign}int{n}": ir.IntType(n) for sign in ("", "u") for n in (8, 16, 32, 64)},
    **dict.fromkeys(("bool", *NARROW), I8),
}
"""LLVM type of one element in memory, by dtype name."""


def _size(element: ir.Type) -> int:
    return {"float": 4, "double": 8, "half": 2}.get(str(element)) or max(1, element.width // 8)


ELEMENT_SIZES = {name: _size(element) for name, element in ELEMENT_TYPES.items()}
"""Bytes of one element in memory, by dtype name."""

Term: TypeAlias = "Index | tuple[Index, Index]"
"""Part of an address, in elements: an index, or (index, stride)."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An emitted kernel. items: independent work items; flops, bytes: of all items together.

    Of a GPU's, threads: of a block; blocks: of the grid; shared: bytes of memory of a block.
    """

    name: str
    items: Size
    flops: Size = 0
    bytes: Size = 0
    threads: int = 0
    blocks: Size = 0
    shared: int = 0


class ModuleBuilder:
    """One LLVM module: the kernels of one network for one target."""

    def __init__(self, name: str, target: Target) -> None:
        self.target = target
        self.module = ir.Module(name)
        self.module.triple = target.triple
        self.fma_functions: dict[ir.Type, ir.Function] = {}
        self._kernels: dict[Hashable, FunctionBuilder] = {}

    def kernel(
        self,
        key: Hashable,
        n_args: int,
        hint: str = "",
        builder: Callable[[ModuleBuilder, str, int], FunctionBuilder] | None = None,
    ) -> FunctionBuilder:
        """The kernel for `key` (all that decides its code), taking `n_args` pointers.

        Asked again with an equal key, it is the same one, and `finished` is true: do not emit.
        hint: start of its name; by default the key's class, or its first item when it is a tuple.
        builder: what writes it, by default that of the target's family.
        """
        if key not in self._kernels:
            first = key[0] if isinstance(key, tuple) else type(key).__name__
            name = f"{hint or (first if isinstance(first, str) else type(first).__name__)}"
            make = builder or BUILDERS[self.target.family]
            self._kernels[key] = make(self, f"{name}_{len(self._kernels)}", n_args)
        return self._kernels[key]

    def intrinsic(self, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Function:
        """An external or intrinsic function, declared once."""
        function = self.module.globals.get(name)
        return function or ir.Function(self.module, ir.FunctionType(result, args), name)

    def constant(self, name: str, values: ir.Constant, align: int = 64) -> ir.GlobalVariable:
        """A read-only global called `name`; declared once."""
        variable = self.module.globals.get(name)
        if variable is None:
            variable = ir.GlobalVariable(self.module, values.type, name)
            variable.linkage, variable.global_constant, variable.align = "internal", True, align
            variable.initializer = values
        return variable

    def exported(self, name: str, data: bytes) -> None:
        """A read-only global that others see by its name: these bytes."""
        kind = ir.ArrayType(I8, len(data))
        variable = ir.GlobalVariable(self.module, kind, name)
        variable.global_constant, variable.initializer = True, ir.Constant(kind, bytearray(data))

    def function(
        self, name: str, result: ir.Type, args: Sequence[ir.Type], internal: bool = False
    ) -> ir.Function:
        """An empty function to be defined, with the target's attributes."""
        fn = ir.Function(self.module, ir.FunctionType(result, args), name)
        fn.attributes.append("nounwind")
        if self.target.vector_bits == 512:  # else LLVM may split 512-bit vectors in two
            fn.attributes.append('"prefer-vector-width"="512"')
            fn.attributes.append('"min-legal-vector-width"="512"')
        if internal:
            fn.linkage = "internal"
        return fn

    def ir_text(self) -> str:
        """The module as LLVM IR."""
        return str(self.module)


class FunctionBuilder:
    """One kernel being written. `b` is for all that has no helper here."""

    def __init__(self, module: ModuleBuilder, name: str, n_args: int) -> None:
        self.module, self.name = module, name
        self.finished = False
        self.kernel: Kernel | None = None
        self._n_args = n_args
        self._sizes: dict[Dim | Atom, ir.Value] = {}
        self.fn = self._function()
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self._table, self.begin, self.end = self._arguments()
        self.args: list[ir.Value] = [
            self.b.load(self.b.gep(self._table, [self.i64(i)], source_etype=PTR), typ=PTR)
            for i in range(n_args)
        ]
        self._begun = len(self.fn.entry_basic_block.instructions)  # what comes before all else
        self._enter()

    def _function(self) -> ir.Function:
        """The empty function. Its first arguments are those of the ABI."""
        return self.module.function(self.name, VOID, KERNEL_TYPE.args)

    def _arguments(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The array of pointers, the first work item, and the one behind the last."""
        table, begin, end = self.fn.args
        return table, begin, end

    def _enter(self) -> None:
        """Code between the arguments and the kernel."""

    def finish(self, items: Size, flops: Size = 0, bytes: Size = 0) -> Kernel:
        """End the function; the kernel that it is."""
        self.b.ret_void()
        self.finished = True
        self.kernel = Kernel(self.name, items, flops, bytes)
        return self.kernel

    # --- control

    def block(self, name: str) -> ir.Block:
        return self.fn.append_basic_block(name)

    def loop(
        self, stop: Index, step: int = 1, carry: Sequence[ir.Value] = (), start: Index = 0
    ) -> EmittedLoop:
        """`for index in range(start, stop, step)`, carrying values from trip to trip.

        Bounds known here must give at least one trip (ValueError); one trip makes no loop at all,
        and `index` is then an int. Bounds known only at run time may give none.
        """
        return EmittedLoop(self, start, stop, step, carry)

    def items(self) -> EmittedLoop:
        """The loop over this call's work items; `index` is the item's number."""
        return EmittedLoop(self, self.begin, self.end, 1, ())

    @contextmanager
    def when(self, condition: ir.Value) -> Iterator[None]:
        """Code that runs only if `condition` (i1) holds; it defines no values for later."""
        with self.b.if_then(condition):
            yield

    def value_if(
        self, condition: ir.Value, value: Callable[[], ir.Value], otherwise: ir.Value
    ) -> ir.Value:
        """What `value` writes and gives where `condition` (i1) holds; elsewhere nothing is done,
        and it is `otherwise`."""
        inside, after, before = self.block("inside"), self.block("after"), self.b.block
        self.b.cbranch(condition, inside, after)
        self.b.position_at_end(inside)
        then, end = value(), self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        result = self.b.phi(otherwise.type)
        result.add_incoming(otherwise, before)
        result.add_incoming(then, end)
        return result

    # --- sizes, integers and addresses

    def size(self, dim: Dim) -> ir.Value:
        """A size of the table of dims, read and computed once."""
        if dim not in self._sizes:
            with self.beginning():
                self._sizes[dim] = self._read(dim)
        return self._sizes[dim]

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Code that runs once, where the kernel begins: memory on the stack, sizes."""
        before, entry = self.b.block, self.fn.entry_basic_block
        remaining = len(entry.instructions) - self._begun
        self.b.position_at(entry, self._begun)
        yield
        self._begun = len(entry.instructions) - remaining
        self.b.position_at_end(before)

    def _read(self, dim: Size) -> ir.Value:
        """Code for the polynomial, where the builder stands."""
        total: Index = dim if isinstance(dim, int) else 0
        for monomial, coefficient in () if isinstance(dim, int) else dim.terms:
            product: Index = coefficient
            for atom, power in monomial:
                for _ in range(power):
                    product = self.imul(product, self._read_atom(atom))
            total = self.iadd(total, product)
        return self.i64(total)

    def _read_atom(self, atom: Atom) -> ir.Value:
        if atom not in self._sizes:
            self._sizes[atom] = self._compute(atom)
        return self._sizes[atom]

    def _compute(self, atom: Atom) -> ir.Value:
        if isinstance(atom, Symbol):
            table_entry = self.b.gep(self._table, [self.i64(self._n_args)], source_etype=PTR)
            dims = self.b.load(table_entry, typ=PTR)
            index = [self.i64(index_of(atom))]
            return self.b.load(self.b.gep(dims, index, source_etype=I64), typ=I64)
        if isinstance(atom, Division):
            above, below = (self._read(d) for d in (atom.numerator, atom.denominator))
            above = self.b.add(above, self.b.sub(below, _i64(1))) if atom.ceiling else above
            quotient = self.b.sdiv(above, below)  # of what may be negative
            remainder = self.b.sub(above, self.b.mul(quotient, below))
            is_below = self.b.icmp_signed("<", remainder, _i64(0))
            return self.b.select(is_below, self.b.sub(quotient, _i64(1)), quotient)
        left, right = self._read(atom.left), self._read(atom.right)
        return self.b.select(self.b.icmp_signed(">", right, left), right, left)

    def i64(self, value: Index) -> ir.Value:
        if isinstance(value, Dim):
            return self.size(value)
        return _i64(value) if isinstance(value, int) else value

    def imul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int | Dim) and isinstance(b, int | Dim):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return y if x else 0
        return self.b.mul(self.i64(a), self.i64(b), flags=("nsw",))

    def iadd(self, a: Index, b: Index) -> Index:
        if isinstance(a, int | Dim) and isinstance(b, int | Dim):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        if isinstance(b, int) and b == 0:
            return a
        return self.b.add(self.i64(a), self.i64(b), flags=("nsw",))

    def idiv(self, a: Index, b: Size) -> Index:
        """a / b rounded down, of what is not negative."""
        if isinstance(a, int | Dim):
            return a // b
        return self.b.udiv(a, self.i64(b))

    def clamp(self, index: Index, low: Size, high: Index) -> Index:
        """`index` brought into [low, high]."""
        if isinstance(index, int | Dim) and isinstance(high, int | Dim):
            return maximum(low, minimum(index, high))
        for bound, relation in ((low, "<"), (high, ">")):
            outside = self.b.icmp_signed(relation, self.i64(index), self.i64(bound))
            index = self.b.select(outside, self.i64(bound), self.i64(index))
        return index

    def remainder(self, extent: Size, below: int) -> Iterator[tuple[Size, int]]:
        """(offset, count) of chunks that make up `extent`, which is smaller than `below`.

        A static extent is one chunk. A dynamic one is cut into chunks of falling powers of two; the
        code that is emitted during an iteration runs only if the extent has that bit set.
        """
        if isinstance(extent, int):
            if extent:
                yield 0, extent
            return
        count = 1 << (below - 1).bit_length() - 1 if below > 1 else 0
        while count:
            needed = extent // count % 2
            with self.when(self.b.icmp_signed("!=", self.i64(needed), self.i64(0))):
                yield extent // (2 * count) * (2 * count), count
            count //= 2

    def split(self, index: Index, *extents: Size) -> list[Index]:
        """Row-major coordinates of a non-negative flat `index`; the first extent is implied.

        `split(i, 3, 5)` gives [i // 15, i // 5 % 3, i % 5].
        """
        coordinates: list[Index] = []
        for extent in reversed(extents):
            if extent == 1:
                coordinates.append(0)
            elif isinstance(index, int) and isinstance(extent, int):
                coordinates.append(index % extent)
                index //= extent
            else:
                quotient = self.b.udiv(self.i64(index), self.i64(extent))
                coordinates.append(self.iadd(index, self.b.mul(quotient, self.i64(-extent))))
                index = quotient
        return [index, *reversed(coordinates)]

    def at(self, pointer: ir.Value, *terms: Term, dtype: str = "float32") -> ir.Value:
        """`pointer` moved by the sum of `terms`, in elements of `dtype`."""
        fixed: Size = 0
        moving: Index | None = None
        for term in terms:
            offset = self.imul(*term) if isinstance(term, tuple) else term
            if isinstance(offset, int | Dim):
                fixed += offset
            else:
                moving = offset if moving is None else self.iadd(moving, offset)
        element = ELEMENT_TYPES[dtype]
        for step in (moving, fixed if fixed != 0 else None):
            if step is not None:
                pointer = self.b.gep(pointer, [self.i64(step)], element, inbounds=True)
        return pointer

    def anchor(self, pointer: ir.Value) -> ir.Value:
        """The same pointer, as one register whose origin LLVM cannot see.

        Loads at constant offsets from it use those as displacements. Otherwise LLVM's loop strength
        reduction keeps one address per load, more than there are registers, and reloads them.
        """
        kind = ir.FunctionType(PTR, [PTR])
        return self.b.call(ir.InlineAsm(kind, "", "=r,0"), [pointer])

    # --- vectors

    def vector_type(self, dtype: str = "float32", lanes: int = LANES) -> ir.VectorType:
        return _vector_type(dtype, lanes)

    def load(self, pointer: ir.Value, dtype: str = "float32", lanes: int = LANES) -> ir.Value:
        """`lanes` consecutive elements; a scalar for lanes = 0. No alignment is assumed."""
        kind = self.vector_type(dtype, lanes) if lanes else ELEMENT_TYPES[dtype]
        return self.b.load(pointer, align=ELEMENT_SIZES[dtype], typ=kind)

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        """Write a vector or a scalar to consecutive elements."""
        element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
        self.b.store(value, pointer, align=_size(element))

    def load_first(
        self, pointer: ir.Value, count: Index, dtype: str = "float32", lanes: int = LANES
    ) -> ir.Value:
        """The first `count` elements and zeros after them; nothing behind them is read."""
        zeros = ir.Constant(self.vector_type(dtype, lanes), None)
        return self.load_masked(pointer, self.first(count, lanes), zeros, dtype)

    def load_masked(
        self, pointer: ir.Value, mask: ir.Value, beside: ir.Value, dtype: str = "float32"
    ) -> ir.Value:
        """Elements where `mask` holds, and `beside` elsewhere, where nothing is read."""
        kind = beside.type
        name = f"llvm.masked.load.{_suffix(kind)}.p0"
        fn = self.module.intrinsic(name, kind, [PTR, I32, mask.type, kind])
        return self.b.call(fn, [pointer, ir.Constant(I32, ELEMENT_SIZES[dtype]), mask, beside])

    def store_first(self, value: ir.Value, pointer: ir.Value, count: Index) -> None:
        """Write the first `count` lanes; nothing behind them is touched."""
        if isinstance(count, int) and count == 1:  # of 16 bits LLVM 22 would write two for x86
            self.store(self.b.extract_element(value, ir.Constant(I32, 0)), pointer)
            return
        self.store_masked(value, pointer, self.first(count, value.type.count))

    def store_masked(self, value: ir.Value, pointer: ir.Value, mask: ir.Value) -> None:
        """Write the lanes where `mask` holds; nothing else is touched."""
        kind = value.type
        name = f"llvm.masked.store.{_suffix(kind)}.p0"
        fn = self.module.intrinsic(name, VOID, [kind, PTR, I32, mask.type])
        self.b.call(fn, [value, pointer, ir.Constant(I32, _size(kind.element)), mask])

    def first(self, count: Index, lanes: int = LANES) -> ir.Value:
        """<lanes x i1>, true in the first `count` lanes."""
        if isinstance(count, int):
            return ir.Constant(ir.VectorType(I1, lanes), [int(i < count) for i in range(lanes)])
        steps = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
        return self.b.icmp_signed("<", steps, self.splat(self.b.trunc(self.i64(count), I32), lanes))

    def splat(self, scalar: ir.Value, lanes: int = LANES) -> ir.Value:
        """A vector of `lanes` copies."""
        kind = ir.VectorType(scalar.type, lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, lanes), None))

    def shuffle(self, vector: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """A vector whose lane i is lane `lanes[i]` of `vector`."""
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        return self.b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def broadcast(self, pointer: ir.Value, dtype: str = "float32", lanes: int = LANES) -> ir.Value:
        """The element at `pointer` in every lane."""
        return self.splat(self.load(pointer, dtype, lanes=0), lanes)

    def constant(self, value: float, dtype: str = "float32", lanes: int = LANES) -> ir.Value:
        """`value` in every lane; a scalar for lanes = 0."""
        element = ELEMENT_TYPES[dtype]
        if not lanes:
            return ir.Constant(element, value)
        return ir.Constant(ir.VectorType(element, lanes), [value] * lanes)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, rounded once."""
        kind = a.type
        fn = self.module.fma_functions.get(kind)
        if fn is None:
            fn = self.module.intrinsic(f"llvm.fma.{_suffix(kind)}", kind, [kind] * 3)
            self.module.fma_functions[kind] = fn
        return self.b.call(fn, [a, b, c])

    def prefetch(self, pointer: ir.Value, locality: int = 3) -> None:
        """Ask for the cache line at `pointer`, which need not be valid. locality: 3 L1, 2 L2."""
        fn = self.module.intrinsic("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
        self.b.call(fn, [pointer, *(ir.Constant(I32, v) for v in (0, locality, 1))])


BUILDERS: dict[str, type[FunctionBuilder]] = {"": FunctionBuilder}
"""What writes kernels, by the target's family."""


def _suffix(kind: ir.Type) -> str:
    """How LLVM spells a type inside an intrinsic's name."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(kind), str(kind))


@functools.lru_cache(maxsize=4096)
def _i64(value: int) -> ir.Value:
    return ir.Constant(I64, value)


@functools.cache
def _vector_type(dtype: str, lanes: int) -> ir.VectorType:
    return ir.VectorType(ELEMENT_TYPES[dtype], lanes)
