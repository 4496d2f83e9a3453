"""Recurrent layers: RNN, GRU and LSTM as ONNX defines them, with PyTorch's projection.

One step is written once, over `StepOps`: the reference, the promised bits and the error model.
Gates are in ONNX's order: update, reset, new (GRU); input, output, forget, cell (LSTM).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from verax.base.errors import GraphError, InputError
from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain, InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding
from verax.numerics.fma import ORDERED
from verax.ops.common import FLOATS, declared_units, draw, same_dtype
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.activations import curve
from verax.ops.recurrent.recurrent_arithmetic import (
    Noisy,
    Plain,
    Promised,
    StepOps,
    stack_roundings,
)

V = TypeVar("V")
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Direction -> for each set of weights, whether it goes from the end."""
X, W, R, B, LENGTHS, HIDDEN, CELL, PEEPHOLES, PROJECTION, PROJECTION_BIAS = range(10)
"""Positions of the inputs; the last four are LSTM's."""
WEIGHTS = (W, R, B, PEEPHOLES, PROJECTION, PROJECTION_BIAS)
"""Those that hold the weights of each direction."""


@dataclasses.dataclass(frozen=True)
class CellWeights:
    """One direction's: w [gates hidden, input], r [gates hidden, output], b and rb [gates hidden],
    p [3 hidden], projection [output, hidden] and its bias or None; curves: its activations."""

    w: Any
    r: Any
    b: Any
    rb: Any
    p: Any
    projection: Any
    projection_bias: Any
    curves: tuple[Elementwise, ...]
    hidden: int

    def gate(self, first: int, last: int | None = None) -> tuple[Any, slice]:
        """Index of the features of gates `first` to `last`."""
        end = first if last is None else last
        return ..., slice(first * self.hidden, (end + 1) * self.hidden)


@dataclasses.dataclass(frozen=True)
class CellOutputs(Generic[V]):
    """One direction's: outputs [batch, output] in the order of time, and the states after all."""

    outputs: list[V]
    states: tuple[V, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Recurrent(Operator):
    """Base of the three. With T steps, batch N, I features, H hidden units and D directions.

    Inputs: x [T, N, I], w [D, gates H, I], r [D, gates H, H], optional b [D, 2 gates H] (of the
    input, then of the state), lengths [N] (int32: how many steps each sequence has; what lies
    behind gives 0 and leaves the state), initial_h [D, N, H]. Outputs: y [T, D, N, H], the last
    state [D, N, H]. layout=1 puts the batch first: x [N, T, I], y [N, T, D, H], states [N, D, H].

    direction: forward, reverse (each sequence from its own end) or bidirectional. activations: per
    direction, ONNX's when empty; activation_alpha, activation_beta: one number for each of them,
    their own defaults when empty. clip: bound of what the gates' activations are given (not of what
    LSTM's last one is: so do ONNX Runtime and OpenVINO). hidden_size: 0 or H.
    """

    direction: str = "forward"
    hidden_size: int = 0
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0

    min_inputs: ClassVar[int] = 3
    max_inputs: ClassVar[int | None] = 6
    gates: ClassVar[int]
    usual: ClassVar[tuple[str, ...]]
    states: ClassVar[int] = 1

    @property
    def output_count(self) -> int:
        return 1 + self.states

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each set of weights, whether it goes through the sequence from its end."""
        return DIRECTIONS[self.direction]

    @property
    def directions(self) -> int:
        return len(self.backwards)

    def curves(self) -> tuple[tuple[Elementwise, ...], ...]:
        """The activations of each direction. Raises `GraphError` where they do not fit."""
        count = len(self.usual)
        names = self.activations or self.usual * self.directions
        if len(names) != count * self.directions:
            raise GraphError(
                f"{len(names)} activations are given; {self.direction} has "
                f"{count * self.directions}"
            )
        numbers: list[Sequence[float | None]] = []
        for name, values in (("alpha", self.activation_alpha), ("beta", self.activation_beta)):
            if values and len(values) != len(names):
                raise GraphError(f"activation_{name} has {len(values)} numbers for {len(names)}")
            numbers.append(values or (None,) * len(names))
        activations = [curve(*arguments) for arguments in zip(names, *numbers)]
        return tuple(tuple(activations[i : i + count]) for i in range(0, len(activations), count))

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return InputGain(Gain.summed, (2,)) if index == 0 else InputGain(Gain.bounded)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        float_inputs = [i for i in (X, HIDDEN, CELL, *WEIGHTS) if ctx.has(i)]
        dtype = same_dtype(ctx, [i for i in dict.fromkeys((X, W, R, *float_inputs))], FLOATS)
        if self.direction not in DIRECTIONS:
            supported = ", ".join(DIRECTIONS)
            ctx.fail(f"unknown direction {self.direction!r}; supported: {supported}")
        ctx.require(self.layout in (0, 1), f"layout is {self.layout}, not 0 or 1")
        for name in ("clip", "cell_clip", "projection_clip"):
            limit = getattr(self, name, None)
            ctx.require(limit is None or limit > 0, f"{name} is {limit}, which leaves nothing")
        try:
            self.curves()
        except GraphError as error:
            ctx.fail(error.cause)
        hidden, output, features = self._sizes(ctx)
        (time, batch), d = self._outer(ctx), self.directions
        for index, dims in self._expected(hidden, output, features, batch).items():
            if ctx.has(index):
                _expect(ctx, index, dims)
        y = (batch, time, d, output) if self.layout else (time, d, batch, output)
        ends = [(batch, d, n) if self.layout else (d, batch, n) for n in (output, hidden)]
        return [TensorType(dtype, dims) for dims in (y, *ends[: self.states])]

    def _sizes(self, ctx: Inference) -> tuple[int, int, DimLike]:
        """Hidden units, outputs, features of the input. The first two must be numbers."""
        for index in (X, W, R):
            if ctx.type(index).rank != 3:
                ctx.fail(f"input {index} is {ctx.type(index)}, not of rank 3")
        rows, output = ctx.type(R).dims[1:]
        if not is_known(rows) or not is_known(output):
            ctx.fail(f"the sizes of the weights must be known: {ctx.type(R)}")
        hidden = rows // self.gates
        fits = hidden * self.gates == rows and self.hidden_size in (0, hidden)
        ctx.require(fits, f"the weights {ctx.type(R)} are not {self.gates} gates of hidden_size")
        if not ctx.has(PROJECTION) and hidden != output:
            ctx.fail(f"the weights {ctx.type(R)} are not those of {hidden} units")
        sizes = ctx.type(X).dims[2], ctx.type(W).dims[2]
        return hidden, output, next((d for d in sizes if is_known(d)), sizes[0])  # type: ignore[return-value]

    def _outer(self, ctx: Inference) -> tuple[DimLike, DimLike]:
        """Number of steps and batch."""
        first, second = ctx.type(X).dims[:2]
        time, batch = (second, first) if self.layout else (first, second)
        sizes = [batch]
        for index, axis in ((LENGTHS, 0), *((i, 1 - self.layout) for i in (HIDDEN, CELL))):
            if ctx.has(index) and axis < ctx.type(index).rank:
                sizes.append(ctx.type(index).dims[axis])
        return time, next((d for d in sizes if isinstance(d, int)), batch)

    def _expected(
        self, hidden: int, output: int, features: DimLike, batch: DimLike
    ) -> dict[int, tuple[DimLike, ...]]:
        """The shape of every input but the sequence's own length."""
        d, rows = self.directions, self.gates * hidden
        return {
            W: (d, rows, features),
            R: (d, rows, output),
            B: (d, 2 * rows),
            LENGTHS: (batch,),
            HIDDEN: (batch, d, output) if self.layout else (d, batch, output),
            CELL: (batch, d, hidden) if self.layout else (d, batch, hidden),
            PEEPHOLES: (d, 3 * hidden),
            PROJECTION: (d, output, hidden),
            PROJECTION_BIAS: (d, output),
        }

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        return self.in_arithmetic(Plain(ev), inputs)

    def in_arithmetic(self, m: StepOps[Any], inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The outputs in an arithmetic of arrays; inputs and outputs as of `reference`."""
        outcomes = self.run(m, inputs)
        dtype = np.asarray(inputs[X]).dtype
        outputs = [
            _stacked([np.asarray(v, dtype) for v in o.outputs], self._empty(inputs, dtype))
            for o in outcomes
        ]
        ends = [[np.asarray(o.states[i], dtype) for o in outcomes] for i in range(self.states)]
        return self._laid_out(np.stack(outputs, 1), [np.stack(e) for e in ends])

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """Bias of the input plus bias of the state, then one FMA per product with the input and
        one per product with the state, each in ascending order; a peephole is one FMA more. All
        else is rounded operation by operation, as the formulas are written."""
        dtype = np.asarray(inputs[X]).dtype
        if dtype not in ORDERED:
            return super().canonical(ev, *inputs)
        outcomes = self.run(Promised(ev), inputs)
        outputs = [_stacked(o.outputs, self._empty(inputs, dtype)) for o in outcomes]
        ends = [[o.states[i] for o in outcomes] for i in range(self.states)]
        return self._laid_out(np.stack(outputs, 1), [np.stack(e) for e in ends])

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Variances and bounds of each step's rounding, carried on by the steps after it."""
        outcomes = self.run(Noisy(ev), inputs)
        if not outcomes[0].outputs:
            none = [np.zeros(np.shape(y)) for y in outputs]
            return [Rounding(z, z) for z in none]
        over_time = [stack_roundings(o.outputs, 0) for o in outcomes]
        ends = [stack_roundings([o.states[i] for o in outcomes], 0) for i in range(self.states)]
        fields = []
        for field in ("sigma", "bound"):
            y = np.stack([getattr(r, field) for r in over_time], 1)
            fields.append(self._laid_out(y, [getattr(e, field) for e in ends]))
        return [Rounding(sigma, bound) for sigma, bound in zip(*fields)]

    def run(self, m: StepOps[V], inputs: Sequence[Any]) -> list[CellOutputs[V]]:
        """Every direction over the sequence, in any arithmetic. Inputs as of `reference`."""
        x = np.swapaxes(inputs[X], 0, 1) if self.layout else inputs[X]
        sequence = m.exact_input(x)
        at = lambda i: inputs[i] if i < len(inputs) else None  # noqa: E731
        initial = [self._initial(inputs, i) for i in (HIDDEN, CELL)[: self.states]]
        masks = self._masks(at(LENGTHS), x.shape[0])
        outcomes = []
        for d, (backwards, curves) in enumerate(zip(self.backwards, self.curves())):
            weights = self._weights(d, curves, *(at(i) for i in WEIGHTS))
            state = tuple(m.exact_input(s[d]) for s in initial)
            outcomes.append(self._direction(m, weights, sequence, state, masks, backwards))
        return outcomes

    def _direction(
        self, m: StepOps[V], weights: CellWeights, x: V, state: tuple[V, ...], masks: Any,
        backwards: bool,
    ) -> CellOutputs[V]:  # fmt: skip
        start = m.bias(weights.b, self.joined_bias(weights))
        projected = m.product(x, weights.w, start)
        outputs: list[V] = []
        for t in reversed(range(len(masks))) if backwards else range(len(masks)):
            new_state = self.step(m, weights, m.take(projected, t), state)
            if masks[t] is None:
                state = new_state
                outputs.append(state[0])
            else:
                state = tuple(m.choose(masks[t], new, old) for new, old in zip(new_state, state))
                outputs.append(m.choose(masks[t], new_state[0], None))
        return CellOutputs(outputs[::-1] if backwards else outputs, state)

    def step(self, m: StepOps[V], w: CellWeights, x: V, state: tuple[V, ...]) -> tuple[V, ...]:
        """The states after a step; the first one is the output. x: what the input gives."""
        raise NotImplementedError

    def joined_bias(self, weights: CellWeights) -> Any:
        """The state's bias, as far as it is added to what the input gives."""
        return weights.rb

    def _initial(self, inputs: Sequence[Any], index: int) -> np.ndarray:
        """The initial state [D, N, ...], zeros where none is given."""
        x, initial = inputs[X], inputs[index] if index < len(inputs) else None
        if initial is not None:
            return np.swapaxes(initial, 0, 1) if self.layout else initial
        batch = x.shape[0] if self.layout else x.shape[1]
        size = inputs[R].shape[1] // self.gates if index == CELL else inputs[R].shape[2]
        return np.zeros((self.directions, batch, size), x.dtype)

    def _masks(self, lengths: Any, steps: int) -> list[Any]:
        """For each step, which sequences still go on [N, 1]; None: all."""
        if lengths is None:
            return [None] * steps
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
            raise InputError(
                f"{self.kind}: the lengths of the sequences lie between {lengths.min()} and "
                f"{lengths.max()}; there are {steps} steps"
            )
        live = np.arange(steps)[:, None] < lengths
        return [None if mask.all() else mask[:, None] for mask in live]

    def _weights(
        self, d: int, curves: tuple[Elementwise, ...], w: Any, r: Any, b: Any, *more: Any
    ) -> CellWeights:
        """Arrays as `WEIGHTS` names them, None where there are none; d: which direction."""
        rows = r.shape[1]
        biases = np.zeros((2 * rows,), w.dtype) if b is None else b[d]
        p, projection, bias = (None if a is None else a[d] for a in more)
        return CellWeights(
            w[d], r[d], biases[:rows], biases[rows:], p, projection, bias, curves,
            rows // self.gates,
        )  # fmt: skip

    def _empty(self, inputs: Sequence[Any], dtype: Any) -> np.ndarray:
        """The outputs of no step at all."""
        batch = inputs[X].shape[0 if self.layout else 1]
        return np.zeros((0, batch, inputs[R].shape[2]), dtype)

    def _laid_out(self, y: np.ndarray, ends: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """y [T, D, N, H] and states [D, N, H] as the layout has them."""
        if not self.layout:
            return y, *ends
        return y.transpose(2, 0, 1, 3), *(np.swapaxes(e, 0, 1) for e in ends)

    @classmethod
    def variants(cls) -> Iterator[tuple[Recurrent, str]]:
        """Operators, and which optional inputs they have: b bias, l lengths, h initial state,
        c initial cell, p peepholes, j projection, k its bias."""
        n = len(cls.usual)
        yield cls(), ""
        yield cls(hidden_size=4, direction="reverse", clip=0.75), "blh"
        yield cls(direction="bidirectional", layout=1), "blh"
        names = ("LeakyRelu", "HardSigmoid", "Elu", "ScaledTanh", "Softsign", "Affine")
        yield (
            cls(
                direction="bidirectional",
                activations=names[: 2 * n],
                activation_alpha=(0.3, 0.25, 0.75, 0.5, 0.0, 1.5)[: 2 * n],
                activation_beta=(0.0, 0.375, 0.0, 1.25, 0.0, -0.25)[: 2 * n],
            ),
            "bh",
        )

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        for op, optional in cls.variants():
            for dtype in ("float32", "float64") if optional in ("", "blh") else ("float32",):
                yield Case(op, cls.drawn(rng, op, optional, dtype), label=f"{dtype} {optional}")

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, op: Recurrent, optional: str, dtype: str = "float32",
        steps: int = 5, batch: int = 3, features: int = 2, hidden: int = 4,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Inputs of `op`; `optional` names the optional ones that are there, as in `variants`."""
        d, rows = op.directions, cls.gates * hidden
        output = 3 if "j" in optional else hidden
        shapes = op._expected(hidden, output, features, batch)
        shapes[X] = (batch, steps, features) if op.layout else (steps, batch, features)
        letters = {B: "b", LENGTHS: "l", HIDDEN: "h", CELL: "c", PEEPHOLES: "p", PROJECTION: "j",
                   PROJECTION_BIAS: "k"}  # fmt: skip
        inputs: list[Any] = []
        for index in range(PROJECTION_BIAS + 1 if d and rows else 0):
            if index > R and letters[index] not in optional:
                inputs.append(None)
            elif index == LENGTHS:
                inputs.append(np.array([steps, 2, 3, 0][:batch], np.int32))
            else:
                scale = 2.0 if index == X else 1.0
                inputs.append(draw(rng, shapes[index], dtype, -scale, scale))  # type: ignore[arg-type]
        while inputs[-1] is None:
            inputs.pop()
        return tuple(inputs)


def _stacked(arrays: list[Any], empty: np.ndarray) -> np.ndarray:
    return np.stack(arrays) if arrays else empty


def _expect(ctx: Inference, index: int, dims: tuple[DimLike, ...]) -> None:
    """Fail when input `index` certainly has another shape than `dims`."""
    type_ = ctx.type(index)
    fits = type_.rank == len(dims) and all(
        a == b or not (is_known(a) and is_known(b)) for a, b in zip(type_.dims, dims)
    )
    ctx.require(fits, f"input {index} is {type_}, not [{', '.join(map(str, dims))}]")
    if index == LENGTHS and type_.dtype not in (DType.int32, DType.int64):
        ctx.fail(f"the lengths of the sequences are {type_.dtype}, not int32")


@operator
class RNN(Recurrent):
    """h' = f(W x + b + R h + rb)."""

    gates: ClassVar[int] = 1
    usual: ClassVar[tuple[str, ...]] = ("Tanh",)

    def step(self, m: StepOps[V], w: CellWeights, x: V, state: tuple[V, ...]) -> tuple[V, ...]:
        total = m.product(state[0], w.r, x)
        return (m.curve(w.curves[0], m.clip(total, self.clip)),)


@operator
class GRU(Recurrent):
    """h' = (1 - z) n + z h, where z, r = f(W x + b + R h + rb) and, of the third gate,
    n = g(W x + b + R (r h) + rb); with linear_before_reset n = g(W x + b + r (R h + rb))."""

    linear_before_reset: bool = False

    gates: ClassVar[int] = 3
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh")

    def joined_bias(self, weights: CellWeights) -> Any:
        if not self.linear_before_reset:
            return weights.rb
        return np.where(np.arange(len(weights.rb)) < 2 * weights.hidden, weights.rb, weights.rb * 0)

    def step(self, m: StepOps[V], w: CellWeights, x: V, state: tuple[V, ...]) -> tuple[V, ...]:
        (h,), (f, g) = state, w.curves
        zr_rows, new = w.gate(0, 1), w.gate(2)
        gates = m.curve(f, m.clip(m.product(h, w.r[zr_rows[1]], m.take(x, zr_rows)), self.clip))
        z, r = m.take(gates, w.gate(0)), m.take(gates, w.gate(1))
        if self.linear_before_reset:
            bias = m.bias(w.rb[new[1]], w.rb[new[1]] * 0)
            total = m.add(m.take(x, new), m.mul(r, m.product(h, w.r[new[1]], bias)))
        else:
            total = m.product(m.mul(r, h), w.r[new[1]], m.take(x, new))
        return (m.blend(z, m.curve(g, m.clip(total, self.clip)), h),)

    @classmethod
    def variants(cls) -> Iterator[tuple[Recurrent, str]]:
        yield from super().variants()
        yield cls(linear_before_reset=True), "bh"
        yield cls(linear_before_reset=True, direction="bidirectional", clip=0.5), "bl"


@operator
class LSTM(Recurrent):
    """c' = f(..) c + f(..) g(..), h' = f(..) k(c'), each gate of W x + b + R h + rb.

    Further inputs: initial_c [D, N, H], peepholes [D, 3 H] (input, output, forget: P c is added to
    the gate, for the output gate P c'), projection [D, P, H], which makes h' = projection @ h' of
    size P, and its bias [D, P]. A third output: the last cell state [D, N, H]. input_forget: the
    forget gate is 1 less the input gate. input_from_forget (TensorFlow's coupled gates): the input
    gate is 1 less the forget gate. cell_clip: bound of c' itself; projection_clip: of h' when it is
    projected.
    """

    input_forget: bool = False
    input_from_forget: bool = False
    cell_clip: float | None = None
    projection_clip: float | None = None

    max_inputs: ClassVar[int | None] = 10
    gates: ClassVar[int] = 4
    usual: ClassVar[tuple[str, ...]] = ("Sigmoid", "Tanh", "Tanh")
    states: ClassVar[int] = 2

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        is_circular = self.input_forget and self.input_from_forget
        ctx.require(not is_circular, "each of the input and the forget gate is made of the other")
        if not ctx.has(PROJECTION):
            alone = ctx.has(PROJECTION_BIAS) or self.projection_clip is not None
            ctx.require(not alone, "a bias or bound of a projection that is not there")
        return super().infer(ctx)

    def step(self, m: StepOps[V], w: CellWeights, x: V, state: tuple[V, ...]) -> tuple[V, ...]:
        (h, c), (f, g, k) = state, w.curves
        total = m.product(h, w.r, x)

        def gate(index: int, cell: V) -> V:
            preactivation = m.take(total, w.gate(index))
            if w.p is not None:
                preactivation = m.along(preactivation, w.p[w.gate(index)], cell)
            return m.curve(f, m.clip(preactivation, self.clip))

        if self.input_from_forget:
            forget_gate = gate(2, c)
            input_gate = m.complement(forget_gate)
        else:
            input_gate = gate(0, c)
            forget_gate = m.complement(input_gate) if self.input_forget else gate(2, c)
        new = m.curve(g, m.clip(m.take(total, w.gate(3)), self.clip))
        c = m.clip(m.add(m.mul(forget_gate, c), m.mul(input_gate, new)), self.cell_clip)
        h = m.mul(gate(1, c), m.curve(k, c))
        if w.projection is not None:
            none = np.zeros(len(w.projection), w.projection.dtype)
            start = m.bias(none if w.projection_bias is None else w.projection_bias, none)
            h = m.clip(m.product(h, w.projection, start), self.projection_clip)
        return h, c

    @classmethod
    def variants(cls) -> Iterator[tuple[Recurrent, str]]:
        yield from super().variants()
        yield cls(), "bhcp"
        yield cls(input_forget=True, direction="bidirectional"), "bhcpl"
        yield cls(cell_clip=0.25, clip=0.5, direction="reverse"), "bcpl"
        yield cls(layout=1, direction="bidirectional"), "bhcjl"
        yield cls(input_from_forget=True, direction="reverse"), "bhcp"
        yield cls(projection_clip=0.25, direction="bidirectional"), "bhcjk"
