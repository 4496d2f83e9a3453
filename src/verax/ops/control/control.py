"""If and Loop: a network chooses between two bodies, or repeats one, by what it computes.

Both are pure functions of their inputs, the values among them that the bodies read from outside
(`subgraphs`). How far rounding moves their results is measured: the bodies run with noise of the
size of every node's rounding. Where such noise makes another choice, nobody can say which results
are right, and the judge is told so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError, OpenChoiceError
from verax.ir.amplification import amplifiers
from verax.ir.dim import DimLike, is_known, maximum
from verax.ir.gains import Gain, InputGain
from verax.ir.graph import Graph
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics.error_model import Rounding
from verax.ops.common import declared_units, draw
from verax.ops.control.subgraphs import Noise, SubgraphEvaluator, body_of, instantiated

MOST_RUNS = 1 << 20
"""A loop that is not done after so many runs, those of loops in it among them, is taken for one
without end."""
MAX_MEASURED = 20_000
"""Evaluations of nodes in bodies up to which it is measured what rounding does to the results: each
is repeated for every draw."""
DRAWS = ((1.0, 8), (4.0, 4), (16.0, 4))
"""Multiples of rounding that are drawn, and how often; a single number may honestly show the
last."""
JUMP = 8
"""A deviation of so many times what is expected is not rounding carried on but a jump inside."""
ENDLESS = "the loop is not done after {} runs"

MISFIT = "the branch that the inputs choose does not fit their sizes"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Control(Operator):
    """Base of both. `run_bodies` says what they do with bodies that somebody else evaluates."""

    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int | None] = None
    through_float32: ClassVar[bool] = False
    takes_narrow: ClassVar[bool] = True

    fields: ClassVar[tuple[str, ...]] = ()
    """Attributes that are bodies."""
    no_derivative = "its bodies are networks of their own"

    def run_bodies(self, runner: SubgraphEvaluator, inputs: Sequence[Any]) -> tuple[Any, ...]:
        raise NotImplementedError

    @property
    def own_inputs(self) -> int:
        """How many inputs stand before those that every body takes from outside."""
        raise NotImplementedError

    def formal(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """Types of what a body takes before that, by those of the operator's inputs."""
        raise NotImplementedError

    def gain(self, ctx: Inference, index: int) -> InputGain:
        """Unbounded where what one of the bodies makes of this input reaches such an operator."""
        inner_inputs = list(zip(ctx.types, ctx.known))[self.own_inputs :]
        count = len(self.formal(ctx.types))
        position = index - self.own_inputs + count
        for body in (body_of(text) for field in self.fields if (text := getattr(self, field))):
            value = body.inputs[position]
            outside = dict(zip(body.inputs[count:], (content for _, content in inner_inputs)))
            constants = {v: a for v, a in outside.items() if a is not None}
            inputs = tuple(v for v in body.inputs if v not in constants)
            inner = dataclasses.replace(
                body, inputs=inputs, constants=constants, updates=self.repeated(body)
            )
            axes = frozenset(range(body.types[value].rank))
            if value not in constants and amplifiers(inner, {value: axes}):
                return InputGain(Gain.unbounded)
        return InputGain(Gain.bounded)

    def repeated(self, body: Graph) -> dict[str, str]:
        """Inputs of a body that its outputs become when it is run again."""
        return {}

    def reference(self, ev: Evaluation, *inputs: Any) -> Any:
        return self.run_bodies(SubgraphEvaluator(ev.work), inputs)

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """Every node of the bodies with the bits that it promises."""
        return self.run_bodies(SubgraphEvaluator(np.dtype(np.float32), is_promised=True), inputs)

    @declared_units
    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Raises `OpenChoiceError` where rounding alone would choose otherwise."""
        exact = SubgraphEvaluator(np.dtype(np.float64))
        meant = self.run_bodies(exact, inputs)
        if exact.evaluations > MAX_MEASURED:
            raise OpenChoiceError(
                f"its bodies evaluate {exact.evaluations} nodes, and what rounding does to results "
                f"is measured for up to {MAX_MEASURED}"
            )
        random, noisy_results = np.random.default_rng(0), []
        for scale, count in DRAWS:
            for _ in range(count):
                noisy = SubgraphEvaluator(np.dtype(np.float64), noise=Noise(scale, random))
                results = self.run_bodies(noisy, inputs)
                if noisy.decisions != exact.decisions:
                    raise OpenChoiceError(
                        "a condition inside lies within rounding of its threshold: what is chosen, "
                        "or how often it runs, is open"
                    )
                noisy_results.append((scale, results))
        return [
            _spread(y, [(s, r[i]) for s, r in noisy_results], t.dtype)
            for i, (y, t) in enumerate(zip(meant, ev.outputs))
        ]


def _spread(y: Any, drawn: Sequence[tuple[float, Any]], dtype: DType) -> Rounding | None:
    """Rounding of one output, from what noise made of it."""
    if not dtype.is_float:
        if any(not np.array_equal(y, r) for _, r in drawn):
            raise OpenChoiceError("rounding inside decides an integer that comes out")
        return None
    off = np.stack([np.nan_to_num(np.abs(r - y), nan=0.0, posinf=0.0) for _, r in drawn])
    once = off[[s == 1.0 for s, _ in drawn]]
    variance = np.mean(once * once, axis=0)
    if not off.any():
        return Rounding(np.zeros(np.shape(y)), np.zeros(np.shape(y)))
    sigma = np.sqrt(variance / 2 + np.mean(variance) / 2)
    for (scale, _), distance in zip(drawn, off):
        sigma = np.where(distance > JUMP * scale * sigma, distance, sigma)
    return Rounding(sigma, np.full(np.shape(y), np.inf))


def _is_one_truth(ctx: Inference, index: int) -> None:
    type_ = ctx.type(index)
    one = all(d == 1 or not is_known(d) for d in type_.dims)
    ctx.require(type_.dtype is DType.bool_ and one, f"the condition is {type_}, not one bool")


@operator
class If(Control):
    """One of two bodies, by a condition.

    Inputs: the condition (bool, one element), then what the bodies take: the same values in the
    same order for both. Outputs: those of the body that is chosen, for both of the same element
    types and as many axes; a size in which they differ is known when it runs. then_branch,
    else_branch: their text forms; one may be "", where it does not fit the sizes at hand: choosing
    it is an error of whoever gives the inputs.
    """

    then_branch: str = ""
    else_branch: str = ""

    fields: ClassVar[tuple[str, ...]] = ("then_branch", "else_branch")

    @property
    def own_inputs(self) -> int:
        return 1

    def formal(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        return ()

    @property
    def output_count(self) -> int:
        return len(body_of(self.then_branch or self.else_branch).outputs)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        return ctx.once(self, lambda: self._inferred(ctx))[0]

    def from_types(self, ctx: Inference) -> tuple[np.ndarray | None, ...]:
        """Contents of the outputs, where the condition is known and the body's are."""
        return ctx.once(self, lambda: self._inferred(ctx))[1]

    def _inferred(self, ctx: Inference) -> tuple[list[TensorType], tuple[np.ndarray | None, ...]]:
        _is_one_truth(ctx, 0)
        types = [ctx.type(i) for i in range(1, len(ctx.types))]
        condition = ctx.value(0)
        texts = {"the then branch": self.then_branch, "the else branch": self.else_branch}
        if condition is not None:
            branch = list(texts)[not condition.reshape(-1)[0]]
            texts = {branch: texts[branch]}
        texts = {branch: text for branch, text in texts.items() if text}
        ctx.require(bool(texts), MISFIT)
        built = [instantiated(ctx, t, types, ctx.known[1:], branch) for branch, t in texts.items()]
        outputs = [body_of(t).outputs for t in texts.values()]
        branch_types = [[b.types[v] for v in names] for b, names in zip(built, outputs)]
        if [(t.dtype, t.rank) for t in branch_types[0]] != [
            (t.dtype, t.rank) for t in branch_types[-1]
        ]:
            listed = [", ".join(map(str, side)) for side in branch_types]
            ctx.fail(
                f"its branches give {listed[0]} and {listed[-1]}: a branch that is chosen while "
                "running must give as many axes as the other gives, of the same type"
            )
        if condition is None:
            either = [
                one.with_dims(
                    [a if a == b else ctx.fresh("chosen") for a, b in zip(one.dims, two.dims)]
                )
                for one, two in zip(branch_types[0], branch_types[-1])
            ]
            return either, (None,) * len(either)
        return branch_types[0], tuple(built[0].known.get(v) for v in outputs[0])

    def run_bodies(self, runner: SubgraphEvaluator, inputs: Sequence[Any]) -> tuple[Any, ...]:
        text = self.then_branch if runner.decide(inputs[0]) else self.else_branch
        if not text:
            raise InputError(MISFIT, next_step="load the network for other sizes")
        return tuple(runner.evaluate(body_of(text), inputs[1:]))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x, w = draw(rng, (3, 5)), draw(rng, (5,))
        for label, truth in (("yes", True), ("no", False)):
            op = cls(then_branch=_SCALED, else_branch=_SHIFTED)
            yield Case(op, (np.array(truth), x, w), label=label)
        op = cls(then_branch=_SHIFTED, else_branch=_SCALED)
        yield Case(op, (np.array([True]), x, w), label="one element")
        yield Case(cls(then_branch=_PARTS, else_branch=_SUM), (np.array(False), x), (0,), "decided")
        yield Case(
            cls(then_branch="", else_branch=_SUM), (np.array(False), x), label="the only one"
        )


@operator
class Loop(Control):
    """A body, run again and again (ONNX's Loop).

    Inputs: how often at most (int64, one element) or none; whether it runs at all (bool, one
    element) or none; `carried` values; what the body takes from outside. The body takes the number
    of the run (int64, from 0), the carried values, what is from outside, and gives whether it goes
    on (bool), the carried values, which keep their types, and rows. Outputs: the carried values
    after the last run; of each row those of all runs, stacked along a new first axis.
    """

    body: str = ""
    carried: int = 0

    min_inputs: ClassVar[int] = 2
    fields: ClassVar[tuple[str, ...]] = ("body",)

    @property
    def own_inputs(self) -> int:
        return 2 + self.carried

    def formal(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """The number of the run, the carried values."""
        carried = (t for t in inputs[2 : self.own_inputs] if t is not None)
        return (TensorType(DType.int64, ()), *carried)

    def repeated(self, body: Graph) -> dict[str, str]:
        carried = slice(1, 1 + self.carried)
        return dict(zip(body.inputs[carried], body.outputs[carried]))

    @property
    def output_count(self) -> int:
        return len(body_of(self.body).outputs) - 1

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        if ctx.has(0):
            limit = ctx.type(0)
            one = all(d == 1 or not is_known(d) for d in limit.dims)
            fits = limit.dtype is DType.int64 and one
            ctx.require(fits, f"the number of runs is {limit}, not one int64")
        if ctx.has(1):
            _is_one_truth(ctx, 1)
        values = [ctx.type(i) for i in range(2, len(ctx.types))]
        ctx.require(len(values) >= self.carried, f"{self.carried} values are carried")
        contents = [*(None,) * (1 + self.carried), *ctx.known[2 + self.carried :]]
        types = [TensorType(DType.int64, ()), *values]
        built = instantiated(ctx, self.body, types, contents, "the body")
        going, *results = body_of(self.body).outputs
        ctx.require(len(results) >= self.carried, f"the body does not give {self.carried} values")
        truth = built.types[going]
        one = truth.dtype is DType.bool_ and all(d == 1 for d in truth.dims)
        ctx.require(one, f"the body's condition is {truth}, not one bool")
        for i, (before, name) in enumerate(zip(values[: self.carried], results)):
            after = built.types[name]
            if before != after:
                ctx.fail(
                    f"the carried value {i} is {before} before a run and {after} after it: a value "
                    "that changes its type is not supported"
                )
        rows = [built.types[v] for v in results[self.carried :]]
        count = self._count(ctx, built.known.get(going)) if rows else 0
        stacked = [TensorType(t.dtype, (count, *t.dims)) for t in rows]
        return [*values[: self.carried], *stacked]

    def from_types(self, ctx: Inference) -> tuple[None, ...]:
        """Nothing is known of the outputs: a type rule runs no loop."""
        return (None,) * self.output_count

    def _count(self, ctx: Inference, going: np.ndarray | None) -> DimLike:
        """How often it runs, a symbol where that is not known."""
        limit, first = ctx.value(0), ctx.value(1)
        if ctx.has(1) and first is not None and not first.reshape(-1)[0]:
            return 0
        goes_on = going is not None and bool(going.reshape(-1)[0])
        if limit is None or not goes_on or (ctx.has(1) and first is None):
            return ctx.fresh("runs")
        return maximum(
            0, limit.reshape(-1)[0] if limit.dtype == object else int(limit.reshape(-1)[0])
        )

    def run_bodies(self, runner: SubgraphEvaluator, inputs: Sequence[Any]) -> tuple[Any, ...]:
        limit, first, *values_in = inputs
        max_runs = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
        going = True if first is None else runner.decide(first)
        body, carried = body_of(self.body), self.carried
        values, outside = list(values_in[:carried]), values_in[carried:]
        rows: list[list[Any]] = [[] for _ in body.outputs[1 + carried :]]
        run = 0
        while going and (max_runs is None or run < max_runs):
            if runner.total_runs >= MOST_RUNS:
                done = ENDLESS.format(runner.total_runs)
                raise InputError(done, next_step="give it a limit, or another input")
            runner.total_runs += 1
            iteration = np.array(run, np.int64)
            truth, *results = runner.evaluate(body, [iteration, *values, *outside])
            going = runner.decide(truth)
            values = results[:carried]
            for column, row in zip(rows, results[carried:]):
                column.append(row)
            run += 1
        runner.runs = run
        return (*values, *(self._stacked(runner, body, i, r) for i, r in enumerate(rows)))

    def _stacked(self, runner: SubgraphEvaluator, body: Any, index: int, rows: list[Any]) -> Any:
        if rows:
            return np.stack(rows)
        row = body.types[body.outputs[1 + self.carried + index]]
        dtype = row.dtype.numpy if runner.is_promised or not row.dtype.is_float else runner.work
        return np.empty((0, *(d if isinstance(d, int) else 0 for d in row.dims)), dtype)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        x, w = draw(rng, (3, 5), low=0.5, high=2.0), draw(rng, (5,), low=0.5, high=1.5)
        yes, four = np.array(True), np.array(4, np.int64)
        op = cls(body=_GROWING, carried=1)
        yield Case(op, (four, yes, x, w, yes), (0, 1, 4), "counted")
        yield Case(op, (four, None, x, w, yes), (0, 4), "no condition")
        yield Case(op, (np.array([0]), yes, x, w, yes), (0, 1, 4), "never")
        yield Case(op, (four, yes, x, w, yes), (), "unknown count")
        far = np.array(1e3, np.float32)
        yield Case(cls(body=_UNTIL, carried=2), (None, None, x, w, far), label="until it is large")
        no = np.array(False)
        yield Case(cls(body=_UNTIL, carried=2), (four, no, x, w, far), label="not at all")


_SCALED = """graph "scaled"
input %x: float32[3, 5]
input %w: float32[5]
%y: float32[3, 5] = Mul()(%x, %w)
%z: float32[3, 5] = Exp()(%y)
output %z
"""
_SHIFTED = """graph "shifted"
input %x: float32[3, 5]
input %w: float32[5]
%y: float32[3, 5] = Add()(%x, %w)
output %y
"""
_PARTS = """graph "one"
input %x: float32[3, 5]
%y: float32[3, 5] = Relu()(%x)
output %y
"""
_SUM = """graph "other"
input %x: float32[3, 5]
%y: float32[5, 3] = Transpose()(%x)
output %y
"""
_GROWING = """graph "growing"
input %i: int64[]
input %x: float32[3, 5]
input %w: float32[5]
input %yes: bool[]
%y: float32[3, 5] = Mul()(%x, %w)
%run: float32[] = Cast(to='float32')(%i)
%z: float32[3, 5] = Add()(%y, %run)
output %yes
output %z
output %y
"""
_UNTIL = """graph "until"
input %i: int64[]
input %x: float32[3, 5]
input %w: float32[5]
input %far: float32[]
%y: float32[3, 5] = Add()(%x, %x)
%v: float32[5] = Add()(%w, %w)
%most: float32[] = ReduceMax(keepdims=False)(%y)
%go: bool[] = Less()(%most, %far)
output %go
output %y
output %v
"""


def kinds_inside(op: Operator) -> Iterator[str]:
    """Kinds of the nodes in an operator's bodies, and in the bodies of those."""
    for text in [getattr(op, f) for f in op.fields] if isinstance(op, Control) else ():
        for node in body_of(text).nodes if text else ():
            yield node.op.kind
            yield from kinds_inside(node.op)
