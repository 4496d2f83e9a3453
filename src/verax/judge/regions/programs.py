"""How a subject may have computed a region: which arithmetic at which node, what is stored in it.

A program is an arithmetic for all products, a rule of what is stored in 16 bits, and exceptions:
nodes that a subject computes otherwise. Attention in float32 beside linear layers in TF32 is one
program with two exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.coarse import on_grid
from verax.judge.decide.matrix_sums import matrix_unit_sigma
from verax.judge.decide.possible import may_be_device
from verax.judge.decide.precision import PRODUCTS, Arithmetic, to_float64, with_factors
from verax.judge.decide.recurrent_precision import (
    RECURRENT,
    RecurrentArithmetic,
    drawn_table,
    recurrent_outputs,
)
from verax.judge.regions.exceptional import BLOCKS, Exceptional, largest_so_far
from verax.judge.regions.float32_tail import Float32Tail, scaled_afterwards
from verax.judge.regions.folding import norms_to_fold
from verax.judge.regions.sampler import MOVES, Sampler, Values
from verax.numerics.formats import FORMATS, FloatFormat, round_to
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.recurrent import Recurrent
from verax.ops.sums.normalization import BatchNormalization

IN_FLOAT32 = frozenset(
    {
        *("LayerNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization"),
        *("Softmax", "LogSoftmax", "Exp", "Log", "Pow", "Reciprocal", "ReduceSum", "ReduceProd"),
        *("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "CumSum", "Softplus"),
        *("Tan", "Acos", "Asin", "Cosh", "Sinh", "Rsqrt"),
    }
)
"""Operators that torch.autocast computes in float32 and whose results it leaves so."""
EXACT_IN_FLOAT32 = frozenset({"Add", "Sub", "Mul", "Neg", "Max", "Min"})
"""Operators whose float32 result is the exact one wherever that is a float32 number."""
SHORT = ("bfloat16", "float16")
TO_SOFTMAX = frozenset({"Mul", "Div", "Add", "Where", "Softmax", *MOVES})
"""What may stand between the scores of attention and their softmax."""


@dataclass(frozen=True)
class SubjectProgram:
    """How a subject may have computed a network.

    factors: the arithmetic of its products. store: the format of every value that is kept in
    memory (None: float32). last: only the shown values are stored in it. fused: a value that only
    an elementwise operator reads stays in float32. folded: BatchNorm was folded into the
    convolution before it, and the folded weights were rounded. autocast: results are stored as
    torch.autocast's lists say. declared: in the 16 bits that the network declares for them, but
    for what lies within attention or between a product and its bias. tail: the last nodes are in
    float32 (`float32_tail`). recurrent: the arithmetic of RNN, GRU and LSTM. exceptions: by the
    first result of a node, how it departs from this.
    """

    name: str
    factors: Arithmetic
    store: FloatFormat | None = None
    last: bool = False
    fused: bool = False
    folded: bool = False
    autocast: bool = False
    declared: bool = False
    tail: bool = False
    recurrent: RecurrentArithmetic = RECURRENT[0]
    exceptions: Mapping[str, Exceptional] = field(default_factory=dict)

    @property
    def unit(self) -> float:
        """Unit roundoff of the coarsest step."""
        return self.factors.unit

    def but(self, value: str, exceptional: Exceptional | None) -> SubjectProgram:
        """This program with another exception, or none, for one node."""
        remaining = {v: e for v, e in self.exceptions.items() if v != value}
        return replace(
            self, exceptions=remaining if exceptional is None else {**remaining, value: exceptional}
        )

    def with_exceptions(self, exceptions: Mapping[str, Exceptional]) -> SubjectProgram:
        """This program with these exceptions, by the first result of a node."""
        return replace(self, exceptions=dict(exceptions))

    def in_words(self) -> str:
        """The exceptions, for the reader; "" for none."""
        nodes = [v for v, e in self.exceptions.items() if e is Exceptional.float32]
        words = [f"with {', '.join(sorted(nodes))} in float32"] if nodes else []
        words += dict.fromkeys(e.value for e in self.exceptions.values() if e in BLOCKS)
        return f" {', '.join(words)}" if words else ""


class ProgramRunner:
    """Runs a region as programs have it.

    names: of the products in the coarser arithmetic, where that is known.
    """

    def __init__(self, sampler: Sampler, names: frozenset[str] | None = None) -> None:
        self.sampler, self.names = sampler, names
        self.norm_of = norms_to_fold(sampler)
        self._unit_sigma: dict[tuple[str, str], np.ndarray] = {}
        self._low: dict[str, dict[str, bool]] = {}

    def run(self, program: SubjectProgram, noise: float) -> Values:
        """Shown values as the program gives them, with `noise` times float32's rounding."""
        stored: Mapping[str, bool] = {}
        if program.autocast and program.store is not None:
            fmt = program.store
            if fmt.name not in self._low:
                self._low[fmt.name] = self._stored_by_autocast(fmt)
            stored = self._low[fmt.name]
        return self.sampler.run(partial(self._step, program, noise, stored))

    def options(self, program: SubjectProgram, node: Node) -> Iterator[Exceptional]:
        """Yield the departures from a program that a subject may take at a node."""
        if node.op.kind in PRODUCTS:
            if program.factors.data is not None or program.factors.weights is not None:
                yield Exceptional.float32
                if self._factor_scales[node.outputs[0]] != (1.0, 1.0) or self._is_weighted(node):
                    yield Exceptional.as_given
                    yield Exceptional.scaled_by_root
                if self._is_weighted(node):
                    keys = self.sampler.inner[str(node.inputs[0])].shape[-1]
                    yield from (e for e, block in BLOCKS.items() if block < keys)
            if program.store is not None and not program.last:
                yield Exceptional.before_bias
        # What autocast stores differs by version; a value stored in 16 bits by itself is a mistake.
        if program.autocast and self._factor_scales:
            yield Exceptional.stored
            yield Exceptional.in_float32

    # ------------------------------------------------------------------ one node
    def _step(
        self,
        program: SubjectProgram,
        noise: float,
        stored: Mapping[str, bool],
        node: Node,
        arrays: Sequence[Any],
    ) -> tuple[np.ndarray, ...]:
        wide = [to_float64(a) for a in arrays]
        value = node.outputs[0]
        if program.folded and value in self.norm_of.values():
            return (wide[0],)
        if isinstance(node.op, Recurrent):
            return self._recurrent(program, noise, node, wide)
        if program.tail and program.store is not None:
            wide = self._tail.read(node, wide, program.store)
        extra: np.ndarray | None = None
        before = program.exceptions.get(value) is Exceptional.before_bias
        if node.op.kind in PRODUCTS:
            if program.folded and value in self.norm_of:
                wide = self._fold(node, wide)
                bare = node.inputs if len(node.inputs) == 3 else (*node.inputs, "folded bias")
                node = replace(node, inputs=tuple(bare))
            if self.names is None or (node.name or value) in self.names:
                wide = self._with_factors(program, node, wide)
            if before and len(wide) > 2 and wide[2] is not None and node.op.kind.startswith("Conv"):
                return self._twice(program, noise, node, wide)
            in_float32 = program.exceptions.get(value) is Exceptional.float32
            if noise and program.factors.factors and not in_float32:
                extra = self._unit_noise(program.factors.factors, node, wide)
            elif noise and in_float32 and may_be_device() and value in self.between_values:
                # Attention in float32 is three products of TF32 numbers there (split_products).
                extra = self._unit_noise("tf32", node, wide)
        elif self._rounds_biases(program) and value in self._biased:
            assert program.store is not None
            wide = [
                round_to(w, program.store) if v in self.sampler.graph.constants else w
                for v, w in zip(node.inputs, wide)
            ]
        outputs = self.sampler.evaluate_wide(node, wide)
        if program.tail and program.store is not None and self._tail.is_twice(node):
            ones = [wide[0], np.ones_like(wide[1])]
            (normal,) = self.sampler.evaluate_wide(replace(node, inputs=node.inputs[:2]), ones)
            outputs = (scaled_afterwards(normal, wide, program.store), *outputs[1:])
        noisy = [self._noisy(node, v, y, noise) for v, y in zip(node.outputs, outputs)]
        if extra is not None and extra.shape == noisy[0].shape:
            noisy[0] = noisy[0] + noise * extra * self.sampler.random.standard_normal(extra.shape)
        return tuple(self._stored(program, stored, node, v, y) for v, y in zip(node.outputs, noisy))

    def _rounds_biases(self, program: SubjectProgram) -> bool:
        return program.store is not None and not program.last and not program.tail

    @cached_property
    def _tail(self) -> Float32Tail:
        sampler = self.sampler
        inside = self._biased, self._unstored, self.norm_of
        return Float32Tail(sampler.graph, sampler.region, *inside)

    def _noisy(self, node: Node, value: str, y: np.ndarray, noise: float) -> np.ndarray:
        noisy = self.sampler.noise(node, value, y, noise)
        if not noise or node.op.kind not in EXACT_IN_FLOAT32 or y.dtype.kind != "f":
            return noisy
        with np.errstate(over="ignore"):
            return np.where(y.astype(np.float32) == y, y, noisy)

    def _with_factors(self, program: SubjectProgram, node: Node, wide: Sequence[Any]) -> list[Any]:
        """A product's inputs rounded as the program does. A factor of attention that was scaled by
        a number before is rounded as it was before that; its weights as they are before they are
        divided by their sum."""
        exceptional = program.exceptions.get(node.outputs[0])
        if exceptional is Exceptional.float32:
            return list(wide)
        if exceptional is Exceptional.as_given:
            return with_factors(node.op, wide, program.factors, {})
        scales: list[Any] = list(self._factor_scales[node.outputs[0]])
        if exceptional is Exceptional.scaled_by_root:
            root = (scales[0] * scales[1]) ** 0.5
            scales = [scale / root for scale in scales]
        elif self._is_weighted(node):
            block = BLOCKS.get(exceptional) if exceptional is not None else None
            scales[0] = largest_so_far(wide[0], block)
        factors = [w / s for w, s in zip(wide[:2], scales)]
        rounded = with_factors(node.op, [*factors, *wide[2:]], program.factors, {})
        return [*(r * s for r, s in zip(rounded[:2], scales)), *rounded[2:]]

    def _twice(
        self, program: SubjectProgram, noise: float, node: Node, wide: Sequence[Any]
    ) -> tuple[np.ndarray, ...]:
        """A convolution that is stored before its bias is added."""
        assert program.store is not None
        (value,) = node.outputs
        (y,) = self.sampler.evaluate_wide(replace(node, inputs=node.inputs[:2]), wide[:2])
        y = round_to(self._noisy(node, value, y, noise), program.store)
        return (round_to(y + wide[2].reshape(-1, *(1,) * (y.ndim - 2)), program.store),)

    def _recurrent(
        self, program: SubjectProgram, noise: float, node: Node, wide: Sequence[Any]
    ) -> tuple[np.ndarray, ...]:
        ev = self.sampler.wide_evaluation(node, wide)
        table = drawn_table(self.sampler.random) if noise else None
        assert isinstance(node.op, Recurrent)
        outputs = recurrent_outputs(node.op, ev, wide, program.recurrent, table)
        noisy = [self.sampler.noise(node, v, y, noise) for v, y in zip(node.outputs, outputs)]
        fmt = program.recurrent.output
        return tuple(y if fmt is None else round_to(y, fmt) for y in noisy)

    def _unit_noise(self, fmt: str, node: Node, wide: Sequence[Any]) -> np.ndarray:
        """What matrix units add to the rounding of a product; computed once for each node."""
        key = node.outputs[0], fmt
        if key not in self._unit_sigma:
            expected = self.sampler.evaluate_wide(node, wide)[0]
            ev = self.sampler.wide_evaluation(node, wide)
            self._unit_sigma[key] = matrix_unit_sigma(node, ev, wide, expected, fmt)
        return self._unit_sigma[key]

    # ------------------------------------------------------------------ what is stored
    def _stored(
        self,
        program: SubjectProgram,
        stored: Mapping[str, bool],
        node: Node,
        value: str,
        y: np.ndarray,
    ) -> np.ndarray:
        """A value as the program stores it."""
        if program.store is None or y.dtype.kind != "f":
            return y
        if program.tail:
            return round_to(y, program.store) if value in self._tail.stored else y
        exceptional = program.exceptions.get(value)
        if exceptional is Exceptional.stored:
            return round_to(y, program.store)
        if exceptional is Exceptional.in_float32:
            return y
        is_observed = value in self.sampler.region.observed
        if program.last and not is_observed:
            return y
        if exceptional is Exceptional.before_bias:
            return round_to(y, program.store)
        if program.declared:
            declared = str(self.sampler.graph.types[value].dtype)
            is_stored = declared in SHORT and value not in self._unstored
            return round_to(y, FORMATS[declared]) if is_stored else y
        if program.autocast:
            return round_to(y, program.store) if stored[value] else y
        readers = self.sampler.graph.consumers.get(value, ())
        if program.fused and not is_observed and len(readers) == 1:
            joins = node.op.kind in PRODUCTS or isinstance(node.op, Elementwise)
            if joins and isinstance(readers[0].op, Elementwise):
                return y
        if program.folded and value in self.norm_of:
            return y
        return round_to(y, program.store)

    def _stored_by_autocast(self, fmt: FloatFormat) -> dict[str, bool]:
        """Whether autocast to a format stores each value in it. Between a product and its bias, and
        between the products of attention, nothing is stored."""
        sampler, low = self.sampler, dict[str, bool]()

        def is_low(value: str) -> bool:
            if value not in low:
                low[value] = on_grid(sampler.observed[value], fmt)
            return low[value]

        for node in sampler.region.nodes:
            kind, value = node.op.kind, node.outputs[0]
            if kind in PRODUCTS:
                own = value not in self._unstored
            elif value in self._biased:
                own = True
            elif kind in IN_FLOAT32:
                own = False
            else:
                own = all(is_low(v) for v in self._typed_inputs(node))
            low.update({v: own and v not in self._unstored for v in node.outputs})
        return low

    def _typed_inputs(self, node: Node) -> list[str]:
        """The inputs that decide the type of an operator's results: floats of more than one
        element, and of BatchNorm the data alone."""
        inputs = [v for v in node.inputs if v is not None]
        if isinstance(node.op, BatchNormalization):
            return inputs[:1]
        constants, types = self.sampler.graph.constants, self.sampler.graph.types
        return [
            v
            for v in inputs
            if types[v].dtype.is_float and not (v in constants and constants[v].size == 1)
        ]

    @cached_property
    def _biased(self) -> set[str]:
        """Results of an Add of a constant to a hidden product that nothing else reads."""
        graph, values = self.sampler.graph, set[str]()
        products = {n.outputs[0] for n in self.sampler.region.nodes if n.op.kind in PRODUCTS}
        for node in self.sampler.region.nodes:
            if node.op.kind != "Add":
                continue
            added = [v for v in node.inputs if v in graph.constants]
            summed = [v for v in node.inputs if v in products]
            if len(added) == 1 and len(summed) == 1:
                values.add(node.outputs[0])
        return values

    @cached_property
    def _unstored(self) -> set[str]:
        """Products that a bias joins, and all between the scores of attention and their use."""
        graph, hidden = self.sampler.graph, self.sampler.region.hidden
        values = set[str]()
        for node in self.sampler.region.nodes:
            if node.outputs[0] in self._biased:
                values.update(v for v in node.inputs if v is not None and v in hidden)
        for node in self.sampler.region.nodes:
            if node.op.kind in PRODUCTS:
                for value, scale in zip(node.inputs, self._factor_scales[node.outputs[0]]):
                    if (
                        scale != 1 and value in hidden
                    ):  # scaled within the kernel, after the product
                        values.add(value)
            if node.op.kind != "Softmax" or node.outputs[0] not in hidden:
                continue
            values.add(node.outputs[0])
            values.update(
                v
                for reader in graph.consumers.get(node.outputs[0], ())
                if reader.op.kind == "Where"
                for v in reader.outputs
            )
            value = node.inputs[0]
            while value in hidden:
                values.add(value)
                producer = graph.producers[value]
                if producer.op.kind not in TO_SOFTMAX:
                    break
                following = [v for v in producer.inputs if v in hidden]
                if len(following) != 1:
                    break
                value = following[0]
        return values

    @cached_property
    def of_unfused_attention(self) -> dict[str, Exceptional]:
        """How products of two computed values are taken where attention is not fused: weights as
        they stand, and queries and keys each scaled by the root of the scale before."""
        return {
            v: Exceptional.as_given
            if self._factor_scales[v] == (1.0, 1.0)
            else Exceptional.scaled_by_root
            for v in self.between_values
        }

    @cached_property
    def with_bias(self) -> list[str]:
        """Results of convolutions with a bias."""
        return [
            n.outputs[0]
            for n in self.sampler.region.nodes
            if n.op.kind.startswith("Conv") and len(n.inputs) > 2 and n.inputs[2] is not None
        ]

    @cached_property
    def between_values(self) -> list[str]:
        """Results of products of two values that are computed in the network, as in attention: of
        those of more than two axes where there are any, for gradients of weights are products of
        two values, too."""
        graph = self.sampler.graph
        fixed = graph.constants.keys() | self.sampler.parameters
        products = [
            n
            for n in self.sampler.region.nodes
            if n.op.kind == "MatMul" and not any(v in fixed for v in n.inputs)
        ]
        batched = [n for n in products if len(graph.types[n.outputs[0]].dims) > 2]
        return [n.outputs[0] for n in batched or products]

    @cached_property
    def _factor_scales(self) -> dict[str, tuple[float, float]]:
        """By product, the number that each factor was multiplied by before, within the region."""
        return {
            n.outputs[0]: (self._scale_of(n.inputs[0]), self._scale_of(n.inputs[1]))
            for n in self.sampler.region.nodes
            if n.op.kind in PRODUCTS
        }

    def _scale_of(self, value: str | None) -> float:
        graph, hidden, scale = self.sampler.graph, self.sampler.region.hidden, 1.0
        while value in hidden:
            node = graph.producers[value]
            if node.op.kind in ("Mul", "Div"):
                constants = [
                    (i, v) for i, v in enumerate(node.inputs) if self._number(v) is not None
                ]
                if len(constants) != 1 or (node.op.kind == "Div" and constants[0][0] != 1):
                    break
                constant = self._number(constants[0][1])
                assert constant is not None
                scale *= constant if node.op.kind == "Mul" else 1 / constant
                value = node.inputs[1 - constants[0][0]]
            elif node.op.kind in MOVES:
                value = node.inputs[0]
            else:
                break
        return scale if scale > 0 else 1.0

    def _number(self, value: str | None) -> float | None:
        """A constant, or a value computed from constants, of one element; else None."""
        sampler = self.sampler
        array = sampler.graph.constants.get(value) if value is not None else None
        if array is None and value in sampler.parameters:
            array = sampler.inner.get(value)
        return float(array.ravel()[0]) if array is not None and array.size == 1 else None

    def _is_weighted(self, node: Node) -> bool:
        """Whether the first factor is what a Softmax gives."""
        value, hidden = node.inputs[0], self.sampler.region.hidden
        while value in hidden:
            producer = self.sampler.graph.producers[value]
            if producer.op.kind == "Softmax":
                return True
            if producer.op.kind not in ("Cast", "Identity", "Where"):
                return False
            computed = self.sampler.graph.types
            operands = [v for v in producer.inputs if v in hidden and computed[v].dtype.is_float]
            value = operands[0] if len(operands) == 1 else None
        return False

    def _fold(self, node: Node, wide: list[Any]) -> list[Any]:
        """A convolution's inputs with the BatchNorm after it folded in."""
        (norm,) = self.sampler.graph.consumers[node.outputs[0]]
        assert isinstance(norm.op, BatchNormalization)
        scale, shift, mean, variance = (
            self.sampler.observed[v].astype(np.float64) for v in norm.inputs[1:] if v is not None
        )
        factor = scale / np.sqrt(variance + norm.op.epsilon)
        data, weights, bias = (*wide, None)[:3]
        before = 0.0 if bias is None else bias
        folded = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
        return [data, folded, (before - mean) * factor + shift]
