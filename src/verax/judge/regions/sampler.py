"""A region of nodes, evaluated in float64: as it is, with rounding noise, with one value disturbed,
or with anything else done to every node on the way (`Sampler.run`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from verax.base.deadline import require_time
from verax.base.process.side_by_side import Behind, in_turn, threads
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues, meaning, stored, with_roundings
from verax.judge.decide.ties import quantities, rounded_otherwise
from verax.judge.regions.adjoint import Tape
from verax.judge.regions.jumps import TIPPING, tips
from verax.numerics import statistics as st
from verax.numerics.error_model import FLUSHED, KAPPA, TINY, Rounding, U
from verax.numerics.formats import FORMATS
from verax.ops.pointwise.arithmetic import Div, Mul
from verax.ops.pointwise.cast import Cast, holds
from verax.ops.quantized.quantization import DequantizeLinear
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.deconvolution import ConvTranspose
from verax.reference.evaluate import evaluate_node

Values = dict[str, np.ndarray]
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""What may stand between a sum and its bias."""
After = Callable[[Node, Sequence[Any]], Sequence[np.ndarray]]
"""(node, its inputs) -> its outputs."""
Watch = Callable[[Node, Sequence[Any], Sequence[np.ndarray]], None]
"""Called with (node, its inputs, its outputs)."""


class Normal(Protocol):
    """What normal numbers come from."""

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Any: ...


class Drawn:
    """Normal numbers that were drawn before, to be asked for in the same order and shapes."""

    def __init__(self, arrays: Iterable[np.ndarray]) -> None:
        self.arrays = deque(arrays)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64) -> Any:
        array = self.arrays.popleft()
        assert array.shape == (size or ()), "drawn for another node"
        return array


@dataclass(frozen=True)
class Region:
    """Nodes in order, their hidden values, and the observed values that they produce.

    A value that is both is judged, and the nodes after it are computed from its reference.
    """

    nodes: tuple[Node, ...]
    hidden: frozenset[str]
    observed: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(n.name or n.outputs[0] for n in self.nodes)


def products_of(node: Node, arrays: Sequence[Any]) -> int:
    """How many products one result of a convolution or matrix product sums up."""
    weights = arrays[1]
    if isinstance(node.op, MatMul):
        return int(weights.shape[-2] if weights.ndim > 1 else weights.size)
    if isinstance(node.op, Gemm):
        return int(weights.shape[1 if node.op.trans_b else 0])
    if isinstance(node.op, ConvTranspose):
        return int(weights[:, 0].size) // node.op.groups
    return int(weights[0].size) if len(weights) else 0


Evaluated = tuple[Node, Sequence[Any], ReferenceValues]
"""A node, its inputs, and what it gave on them."""
Noted = tuple[ReferenceValues, list[np.ndarray | None]]
"""What it gave with its roundings, and the standard deviation of each as noise has it."""


def _with_sigma(evaluated: Evaluated) -> Noted:
    """How far rounding moves what a node gave."""
    node, arrays, values = evaluated
    if all(r is None for r in values.roundings):
        values = with_roundings(node, arrays, values)
    sigmas: list[np.ndarray | None] = []
    for array, rounding in zip(values.outputs, values.roundings):
        if rounding is None or array.dtype.kind != "f":
            sigmas.append(None)
            continue
        sigma = np.nan_to_num(rounding.sigma, nan=0.0, posinf=0.0)
        # a sum of zeros is zero to everybody, and a norm makes much of very little
        sigmas.append(np.where((array == 0) & (sigma < FLUSHED), 0.0, sigma + TINY))
    return values, sigmas


class Sampler:
    """One region's expected values, samples and disturbances.

    expected: float64 by observed value; inner: by hidden value; sigma: each value's own rounding;
    tape: the run for derivatives; parameters: hidden values made of constants alone (weights that
    are computed); problems: nodes without an error model; quanta: relative size of a step, by
    quantized value.
    """

    def __init__(
        self, graph: Graph, region: Region, observed: Mapping[str, np.ndarray], seed: int
    ) -> None:
        self.graph, self.region, self.observed = graph, region, observed
        self.random = np.random.default_rng(seed)
        self.sigma: dict[str, np.ndarray] = {}
        self.inner: Values = {}
        self.tape = Tape(region.hidden)
        self.parameters: set[str] = set()
        self.problems: list[str] = []
        self.quanta: dict[str, float] = {}
        self._terms: dict[str | None, int] = {}
        self._sizes: dict[str | None, np.ndarray] = {}  # of those terms, summed
        self._ahead: list[Values] = []
        self.expected = self._first_run()

    def run(self, after: After) -> Values:
        """The observed values of one evaluation; `after(node, inputs)` gives each node's
        outputs."""
        inner: Values = {}
        produced: Values = {}
        for i, node in enumerate(self.region.nodes):
            require_time()
            arrays = [
                None if v is None else inner[v] if v in inner else self.observed[v]
                for v in node.inputs
            ]
            outputs = after(node, arrays)
            for value, array in zip(node.outputs, outputs):
                if value in self.region.hidden:
                    inner[value] = array
                if value in self.region.observed:
                    produced[value] = array
            for value in self._last_read[i]:
                inner.pop(value, None)
        return produced

    @functools.cached_property
    def _last_read(self) -> list[list[str]]:
        """By node, the values that none after it reads: whole networks need not be kept."""
        last = {v: i for i, n in enumerate(self.region.nodes) for v in (*n.outputs, *n.inputs) if v}
        freed: list[list[str]] = [[] for _ in self.region.nodes]
        for value, i in last.items():
            freed[i].append(value)
        return freed

    @functools.cached_property
    def jump(self) -> str:
        """The first node whose result jumps under rounding noise, with a margin; "" for none.

        A comparison of 73.3 with 0 may read what rounding moves, and no rounding tips it."""
        for scale in TIPPING if self.tape.jumps else ():
            tipped = self._tipped(scale)
            if tipped:
                return self.tape.records[tipped[0]].node.place
        return ""

    def _tipped(self, scale: float) -> list[int]:
        """Indices of the records that jump in one sample with `scale` times the rounding noise."""
        tipped: list[int] = []
        positions = itertools.count()

        def watch(node: Node, arrays: Sequence[Any], outputs: Sequence[np.ndarray]) -> None:
            i = next(positions)
            if i in self.tape.jumps and tips(self.tape.records[i], arrays, outputs):
                tipped.append(i)

        self._draw(scale, watch)
        return tipped

    def evaluate(self, node: Node, arrays: Sequence[Any]) -> ReferenceValues:
        declared, outputs = self.graph.input_types(node), self.graph.output_types(node)
        return self._loosened(node, arrays, meaning(node, arrays, declared, outputs, errors=False))

    def evaluate_wide(self, node: Node, wide: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Outputs of a node on float64 inputs `wide`, which may be more than the graph gives it."""
        ev = self.wide_evaluation(node, wide)
        return evaluate_node(node, wide, ev.inputs, ev.outputs)

    def wide_evaluation(self, node: Node, wide: Sequence[Any]) -> Evaluation:
        """The types of float64 inputs `wide` of a node, and those of its outputs."""
        types = tuple(None if x is None else TensorType.of(x) for x in wide)
        return Evaluation(types, self.graph.output_types(node))

    def _loosened(
        self, node: Node, arrays: Sequence[Any], evaluated: ReferenceValues
    ) -> ReferenceValues:
        """`evaluated`, where a cast of a hidden value to a coarser float is left unrounded.

        Its rounding becomes noise, like that of any other value stored in that type: its direction
        depends on the rounding before it."""
        (source,) = node.inputs[:1] or (None,)
        if not isinstance(node.op, Cast) or source not in self.region.hidden:
            return evaluated
        declared, to = self.graph.types[source].dtype, node.op.to
        if not (declared.is_float and to.is_float) or holds(to, declared):
            return evaluated
        if source in self.tape.steady:
            return evaluated
        (rounded,) = evaluated.outputs
        exact = np.asarray(arrays[0], np.float64)
        in_range = np.isfinite(rounded) & (np.abs(exact) <= FORMATS[str(to)].largest)
        exact = np.where(in_range, exact, rounded)  # a Cast may saturate
        nothing = Rounding(np.zeros(exact.shape), np.zeros(exact.shape))
        return dataclasses.replace(
            evaluated, outputs=(exact,), roundings=(stored(nothing, exact, to),)
        )

    def _first_run(self) -> Values:
        """The observed values; everything about the nodes is noted on the way. Their errors are
        computed beside the next nodes where this work may use several threads."""

        def evaluated(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            if isinstance(node.op, Cast):
                behind.finish()  # whether it rounds follows from what is known of its input
            values = self.evaluate(node, arrays)
            behind.add((node, arrays, values))
            return values.outputs

        with Behind(_with_sigma, self._note) as behind:
            return self.run(evaluated)

    def _note(self, item: Evaluated, noted: Noted) -> None:
        """Keep what is known of a node, after that of all nodes before it."""
        (node, arrays, _), (evaluated, sigmas) = item, noted
        if evaluated.problem:
            self.problems.append(f"{node.place}: {evaluated.problem}")
        fixed = node.op.is_flat or all(
            v is None or v in self.graph.constants or v in self.parameters for v in node.inputs
        )
        still = fixed and not evaluated.problem
        for value, array, sigma in zip(node.outputs, evaluated.outputs, sigmas):
            if sigma is not None:
                if fixed:  # a size, a count: sqrt(16) is 4 to everybody
                    sigma = np.where(array == np.rint(array), 0.0, sigma)
                self.sigma[value] = np.broadcast_to(sigma, array.shape)
                still = still and not sigma.any()
            if value in self.region.hidden:
                self.inner[value] = array
        if fixed:
            self.parameters.update(node.outputs)
        self._let_addends_start(node, arrays, evaluated.outputs[0], evaluated.roundings)
        for value, quantity in zip(node.outputs, quantities(node, evaluated.ev, arrays)):
            if quantity is not None:
                self.quanta[value] = quantity.step
        self.tape.add(node, evaluated.ev, arrays, evaluated.outputs, still)

    def _let_addends_start(
        self,
        node: Node,
        arrays: Sequence[Any],
        result: np.ndarray,
        roundings: Sequence[Rounding | None],
    ) -> None:
        """Enlarge sigma where a bias or skip connection is added to a hidden sum of products: a
        runtime may start the sum with it, and rounds every partial sum at its size then.

        `numerics.error_model.sum_of_products` says so of operators that have a bias themselves. A
        result that is not finite (a score to which a mask adds -inf) is so from its first addend
        on, in whatever order: nothing of it is rounded.
        """
        value = node.outputs[0]
        if node.op.kind in PRODUCTS:
            self._terms[value] = products_of(node, arrays)
            (rounding,) = roundings
            if rounding is not None and self._terms[value]:
                self._sizes[value] = rounding.bound / (U * self._terms[value])
        if node.inputs[0] in self._alone and node.op.kind in MOVES:
            self._terms[value] = self._terms.get(node.inputs[0], 0)
            if node.inputs[0] in self._sizes:
                (sizes,) = self.evaluate_wide(node, [self._sizes[node.inputs[0]], *arrays[1:]])
                self._sizes[value] = sizes
        if node.op.kind not in ("Add", "Sub", "Sum") or value not in self.sigma:
            return
        signs = (1, -1) if node.op.kind == "Sub" else (1,) * len(arrays)
        ordinary = np.isfinite(result)  # then every addend is
        total = np.where(ordinary, result, 0.0)
        for name, sign, product in zip(node.inputs, signs, arrays):
            terms = self._terms.get(name, 0) if name in self._alone else 0
            if terms:
                start = total - sign * np.where(ordinary, product, 0.0)
                first = np.maximum(0.0, start * total)  # b^2 + b S, S + b the total
                grown = KAPPA * U * np.sqrt(terms * np.nan_to_num(first, posinf=0.0))
                # No addition rounds away more than the smaller of what it adds, and where every
                # product is lost beside the start, the start is what is left.
                size = np.where(ordinary, self._sizes.get(name, np.inf), 0.0)
                lost = size < U / 4 * np.abs(start)
                grown = np.where(lost, np.abs(total - start), np.minimum(grown, size))
                self.sigma[value] = np.hypot(self.sigma[value], grown)

    @functools.cached_property
    def _alone(self) -> set[str]:
        """Hidden values that one node reads, once."""
        readers = {v: self.graph.consumers.get(v, ()) for v in self.region.hidden}
        return {
            v for v, nodes in readers.items() if len(nodes) == 1 and nodes[0].inputs.count(v) == 1
        }

    def draw_ahead(self, count: int) -> None:
        """Draw the first `count` samples in advance."""
        self._ahead = self.samples(count)

    def samples(self, count: int) -> list[Values]:
        """The next `count` samples, several at a time where this work may use several threads.

        Each has the numbers that it would have alone: they are drawn in one thread, in order."""
        ready, self._ahead = self._ahead[:count], self._ahead[count:]
        missing = count - len(ready)
        if threads() == 1 or not self._is_drawable:
            return [*ready, *(self._draw(1.0) for _ in range(missing))]
        drawn = (Drawn(self._numbers()) for _ in range(missing))
        return [*ready, *in_turn(lambda numbers: self._draw(1.0, random=numbers), drawn)]

    @functools.cached_property
    def _is_drawable(self) -> bool:
        """Whether what a sample draws is known without evaluating it."""
        types = (t for n in self.region.nodes for t in self.graph.output_types(n))
        return not self.quanta and all(t.is_static for t in types)

    def _numbers(self) -> Iterator[np.ndarray]:
        """What `_draw` draws for one sample, in its order, where `_is_drawable`."""
        random = self.random
        for node in self.region.nodes:
            weights = self._folding(node)
            if weights is not None:
                yield random.standard_normal(self.observed[weights].shape)
            for value in node.outputs:
                if value in self.sigma:
                    yield random.standard_normal(self.sigma[value].shape, dtype=np.float32)
                    if isinstance(node.op, DequantizeLinear):
                        yield np.asarray(random.standard_normal())

    def sample(self, scale: float = 1.0) -> Values:
        """Observed values with `scale` times the rounding noise at every node."""
        if self._ahead:
            assert scale == 1, "what was drawn ahead is asked for first"
            return self._ahead.pop(0)
        return self._draw(scale)

    def _draw(
        self, scale: float, watch: Watch | None = None, random: Normal | None = None
    ) -> Values:
        """One sample. watch: called with each node, its inputs and outputs without its own
        noise. random: where its normal numbers come from."""

        def noisy(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            evaluated = self.evaluate(node, self._refolded(node, arrays, scale, random))
            decided = quantities(node, evaluated.ev, arrays)
            if watch is not None:
                watch(node, arrays, evaluated.outputs)
            return tuple(
                self.noise(node, v, y, scale, random)
                if q is None
                else rounded_otherwise(q, y, self.random)
                for v, y, q in zip(node.outputs, evaluated.outputs, decided)
            )

        return self.run(noisy)

    def _folding(self, node: Node) -> str | None:
        """The parameter of a node (weights, a shift) into which a map of channels may be folded."""
        if node.op.kind in PRODUCTS and node.outputs[0] in self._folded:
            return node.inputs[1]
        if isinstance(node.op, BatchNormalization) and node.inputs[0] in self._folded:
            return node.inputs[2]
        return None

    def _refolded(
        self, node: Node, arrays: Sequence[Any], scale: float, random: Normal | None = None
    ) -> Sequence[Any]:
        """A node's inputs, its weights and shift with the rounding that folding a map of channels
        into them adds, common to all elements."""
        if self._folding(node) is None:
            return arrays
        random = random or self.random
        if not isinstance(node.op, BatchNormalization):
            weights = np.asarray(arrays[1], np.float64)
            error = st.CONSTANT_ROUNDINGS * U * random.standard_normal(weights.shape)
            return [arrays[0], weights * (1 + scale * error), *arrays[2:]]
        factor, shift, mean, variance = (np.asarray(a, np.float64) for a in arrays[1:])
        with np.errstate(all="ignore"):
            magnitude = np.abs(shift) + np.abs(mean * factor / np.sqrt(variance + node.op.epsilon))
        error = st.CONSTANT_ROUNDINGS * U * random.standard_normal(shift.shape)
        return [arrays[0], factor, shift + scale * error * magnitude, mean, variance]

    @functools.cached_property
    def _folded(self) -> set[str]:
        """Hidden results of products with constant weights that a map of channels alone reads."""
        folded: set[str] = set()
        for node in self.region.nodes:
            value, readers = node.outputs[0], self.graph.consumers.get(node.outputs[0], ())
            if node.op.kind not in PRODUCTS or node.inputs[1] not in self.graph.constants:
                continue
            if value not in self.region.hidden or len(readers) != 1:
                continue
            (reader,) = readers
            parameters = [v for v in reader.inputs if v not in (value, None)]
            maps = isinstance(reader.op, BatchNormalization | Mul | Div)
            if maps and all(v in self.graph.constants for v in parameters):
                folded.add(value)
        return folded

    def noise(
        self,
        node: Node,
        value: str,
        array: np.ndarray,
        scale: float,
        random: Normal | None = None,
    ) -> np.ndarray:
        """An output of the node with `scale` times the noise of rounding.

        A quantization scale may be combined with others first: all elements share that error.
        """
        sigma = self.sigma.get(value)
        if not scale or sigma is None or sigma.shape != array.shape:
            return array
        random = random or self.random
        noise = random.standard_normal(array.shape, dtype=np.float32)
        if isinstance(node.op, DequantizeLinear):
            shared = scale * st.CONSTANT_ROUNDINGS * U * random.standard_normal()
            array = array * (1 + shared)
        noisy = (scale * sigma if scale != 1 else sigma) * noise
        noisy += array
        return noisy

    @functools.cached_property
    def steps(self) -> dict[str, float]:
        """By value, the relative size of a step of the quantization that follows next (the finest
        of several), or else of the one before."""
        step_of: dict[str, float] = {}

        def finest(values: Sequence[str | None]) -> float | None:
            sizes = [self.quanta.get(v, step_of.get(v)) for v in values if v is not None]
            return min((s for s in sizes if s is not None), default=None)

        for node in reversed(self.region.nodes):
            after = finest(node.outputs)
            for value in node.inputs:
                if value is not None and after is not None:
                    step_of[value] = min(after, step_of.get(value, after))
        for node in self.region.nodes:
            before = finest(node.inputs)
            for value in node.outputs:
                if before is not None:
                    step_of.setdefault(value, before)
        return step_of

    def disturbed(self, target: str, size: float) -> Values:
        """Observed values when `target` alone has relative errors of `size`."""
        y = self.inner[target]
        return self.propagated({target: y * (1 + size * self.random.standard_normal(y.shape))})

    def propagated(self, changed: Values) -> Values:
        """Observed values that depend on the hidden ones in `changed`, recomputed from them."""
        inner = dict(changed)
        produced = {v: a for v, a in changed.items() if v in self.region.observed}
        for node in self.region.nodes:
            if not changed.keys().isdisjoint(node.outputs):
                continue
            if not any(v in inner for v in node.inputs):
                continue
            arrays = [
                None
                if v is None
                else inner.get(v, self.inner[v] if v in self.inner else self.observed.get(v))
                for v in node.inputs
            ]
            for value, array in zip(node.outputs, self.evaluate(node, arrays).outputs):
                if value in self.region.hidden:
                    inner[value] = array
                if value in self.region.observed:
                    produced[value] = array
        return produced
