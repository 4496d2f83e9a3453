"""What an operator is: the declaration that every family in `ops/` fills in.

An operator is a frozen dataclass whose fields are its typed attributes. It states its type rule
(`infer`), its meaning (`reference`), the bits it promises in float32 (`canonical`), how far
rounding may move its result (`error`), and how to draw test cases (`cases`). It never says how it
runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, dataclass_transform

import numpy as np

from verax.base.errors import GraphError
from verax.ir.assumptions import assumptions
from verax.ir.dim import DimLike, symbol
from verax.ir.gains import Gain, InputGain
from verax.ir.types import HALVES, DType, TensorType
from verax.numerics.arith_meaning import MeaningArith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import Quantity, Rounding

T = TypeVar("T")
Array = np.ndarray
REGISTRY: dict[str, type[Operator]] = {}
MEANING, PROMISED = MeaningArith(), NumpyArith()
"""Whose elementary functions a `reference` uses: the yardstick's, or those of one value of bits."""


@dataclasses.dataclass
class Inference:
    """What a type rule may know: input types (None for an omitted input) and known input values.

    `known[i]` is an array when input i is a constant; an object array holding ints and `Dim`s when
    it is a shape computation over symbols; otherwise None.
    """

    types: tuple[TensorType | None, ...]
    known: tuple[Array | None, ...] = ()
    place: str = ""
    _fresh: int = 0
    _found: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.known = tuple(self.known) + (None,) * (len(self.types) - len(self.known))

    def type(self, index: int) -> TensorType:
        """Type of a required input; raises `GraphError` when it is omitted."""
        if not self.has(index):
            self.fail(f"input {index} is required")
        type_ = self.types[index]
        assert type_ is not None
        return type_

    def has(self, index: int) -> bool:
        """Whether optional input `index` is given."""
        return index < len(self.types) and self.types[index] is not None

    def value(self, index: int) -> Array | None:
        """Known value of input `index`, or None."""
        return self.known[index] if index < len(self.known) else None

    def fresh(self, hint: str = "d") -> DimLike:
        """A new symbol for a size that only running can tell (NonZero, unknown Reshape, ...)."""
        self._fresh += 1
        name = "".join(c if c.isalnum() else "_" for c in self.place) or "node"
        new, assumed = f"_{name}.{hint}{self._fresh}", assumptions()
        return symbol(new if assumed is None else assumed.counted_symbol(new))

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What `find` gives, found once: types and contents are asked for one after the other."""
        if key not in self._found:
            self._found[key] = find()
        value: T = self._found[key]
        return value

    def fail(self, message: str) -> NoReturn:
        """Raise the `GraphError` of a violated type rule."""
        raise GraphError(message, place=self.place)

    def require(self, condition: bool, message: str) -> None:
        if not condition:
            self.fail(message)

    def one_of(self, name: str, value: str, supported: Iterable[str]) -> None:
        """Require that the attribute `name` has one of the supported values."""
        choices = tuple(supported)
        self.require(value in choices, f"unknown {name} {value!r}; supported: {', '.join(choices)}")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How a reference is being evaluated.

    work: NumPy dtype that carries every floating-point tensor (float64 by default; float32, or
    object for exact `fractions.Fraction`s). Integer and boolean tensors keep their own dtype,
    those of 4 and 2 bits in bytes.
    inputs, outputs: declared types. arith: MEANING, or PROMISED where the result is promised in
    every bit; a reference takes all elementary functions from it.
    """

    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    work: np.dtype = dataclasses.field(default_factory=lambda: np.dtype(np.float64))
    arith: NumpyArith = MEANING

    def dtype(self, declared: DType) -> np.dtype:
        """NumPy dtype that carries a tensor declared as `declared`."""
        return self.work if declared.is_float else declared.counted


@dataclasses.dataclass(frozen=True)
class Case:
    """One test case: an operator with attributes set, and arrays for its inputs (float32 etc.).

    `constant` lists the inputs whose values the type rule must know (shapes, axes, ...).
    """

    op: Operator
    inputs: tuple[Array | None, ...]
    constant: tuple[int, ...] = ()
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Operator:
    """Base of all operators. See the module's docstring."""

    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int | None] = 1  # None: any number
    exact: ClassVar[bool] = (
        False  # result is one of finitely many exactly known values: no rounding
    )
    symbolic: ClassVar[bool] = False  # `reference` also works on object arrays of Dims
    unsupported: ClassVar[str] = ""  # why a duty (reference, error model) is not met
    takes_narrow: ClassVar[bool] = False  # also types that are stored but not computed in
    through_float32: ClassVar[bool] = True  # float16, bfloat16: as float32 promises, rounded once
    no_kernel: ClassVar[str] = ""  # why it never runs natively, but by its meaning, in Python
    jumps: ClassVar[bool] = False  # between some neighboring inputs: a derivative says nothing
    is_flat: ClassVar[bool] = False  # its result depends on no number that it reads
    no_derivative: ClassVar[str] = ""  # why there is no rule that hands sensitivities back
    no_hypotheses: ClassVar[str] = ""  # why no family lists the ways in which it goes wrong
    gains: ClassVar[tuple[Gain, ...]] = ()  # of each input; the last one is that of all behind it

    if TYPE_CHECKING:

        def __init__(self, **attributes: Any) -> None:
            """A class that is found by its name (`REGISTRY`) takes attributes of its own."""

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def output_count(self) -> int:
        """Number of outputs (attributes may change it)."""
        return 1

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        """Output types. Raises `GraphError` through `ctx.fail` when inputs do not fit."""
        raise NotImplementedError

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        """The meaning, in NumPy: one array, or a tuple when there are several outputs.

        Floating-point inputs arrive, and outputs leave, in `ev.work`.
        """
        raise NotImplementedError

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """The promised bits, inputs and outputs in their declared dtypes.

        By default those of `in_float32` where float16 or bfloat16 is among the types, else those
        of `reference` in float64 with the functions of `PROMISED`, rounded once to the declared
        type; operators with compiled kernels override it by their canonical order for wider types.
        """
        types = (*ev.inputs, *ev.outputs)
        if self.through_float32 and HALVES & {t.dtype for t in types if t is not None}:
            return self.in_float32(ev, *inputs)
        wide = [
            # row-major: NumPy's order of adding follows what lies together in memory
            x.astype(np.float64, "C") if x is not None and t is not None and t.dtype.is_float else x
            for x, t in zip(inputs, ev.inputs)
        ]
        ev = dataclasses.replace(ev, arith=PROMISED, work=np.dtype(np.float64))
        results = as_tuple(self.reference(ev, *wide))
        with np.errstate(all="ignore"):
            return tuple(np.asarray(r).astype(t.dtype.numpy) for r, t in zip(results, ev.outputs))

    def in_float32(self, ev: Evaluation, *inputs: Any) -> tuple[Array, ...]:
        """What is promised in float32 for the same numbers, rounded once to float16 or bfloat16."""
        wide = [
            x.astype(np.float32) if x is not None and t is not None and t.dtype in HALVES else x
            for x, t in zip(inputs, ev.inputs)
        ]
        types = Evaluation(
            tuple(None if t is None else t.widened() for t in ev.inputs),
            tuple(t.widened() for t in ev.outputs),
            ev.work,
        )
        results = as_tuple(self.canonical(types, *wide))
        with np.errstate(all="ignore"):
            return tuple(np.asarray(r).astype(t.dtype.numpy) for r, t in zip(results, ev.outputs))

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Rounding of an honest float32 implementation, per output; None for an exact output.

        Inputs and outputs are the float64 values of the meaning.
        """
        if self.exact:
            return (None,) * len(outputs)
        raise NotImplementedError

    def gain(self, ctx: Inference, index: int) -> InputGain:
        """What becomes of an error of input `index`, whose elements are floats.

        By default `gains` says it; operators whose attributes, axes or constants matter override
        this. One that states nothing counts as unbounded.
        """
        if not self.gains:
            return InputGain(Gain.unbounded)
        return InputGain(self.gains[min(index, len(self.gains) - 1)])

    def moved_axes(
        self, ctx: Inference, index: int, axes: frozenset[int], output: TensorType
    ) -> frozenset[int] | None:
        """The axes of `output` along which it varies as input `index` does along its `axes`.

        None: not known. By default the same axes, where there are as many.
        """
        return axes if output.rank == ctx.type(index).rank else None

    def decides(self, ev: Evaluation, inputs: Sequence[Any]) -> Sequence[Quantity | None]:
        """The real numbers that it rounds to integers, per output; none for most operators.

        Inputs as for `error`. An integer that differs from the meaning is rounding where the number
        lies within its own rounding of the edge between two.
        """
        return ()

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        """Draw test cases: every attribute away from its default at least once."""
        raise NotImplementedError

    def attributes(self) -> dict[str, Any]:
        """Attributes by name, in declaration order."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __str__(self) -> str:
        attributes = []
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.default is dataclasses.MISSING or value != f.default:
                attributes.append(f"{f.name}={_literal(value)}")
        return f"{self.kind}({', '.join(attributes)})"

    __repr__ = __str__


def _literal(value: object) -> str:
    if isinstance(value, DType):
        return repr(str(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def as_tuple(result: Any) -> tuple[Any, ...]:
    """A reference's result as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


_T = TypeVar("_T", bound=Operator)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def operator(cls: type[_T]) -> type[_T]:
    """Class decorator: make a frozen, keyword-only dataclass and register it under its name."""
    decorated = dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
    if decorated.__name__ in REGISTRY:
        raise AssertionError(f"two operators are called {decorated.__name__}")
    REGISTRY[decorated.__name__] = decorated
    return decorated
