"""TFLite's LSTM on floating-point data where it is written out step by step: with weights of bytes
(dynamic-range quantization), and with gates that are normalized over the units.

LiteRT quantizes each row of the data, of the state and of what is projected while it runs, sums
exact integers, and scales the sums back in float32. Every step rounds so, which no operator of
whole sequences does; what the data give to the gates is one product for all steps. Equations and
positions of the operands: tensorflow/lite/kernels/lstm_eval.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import of_tensor
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.table_hybrid import _quantized, _scaled_product
from verax.frontends.tflite.table_quantized_lstm import steps_of, unrolled
from verax.frontends.tflite.table_recurrent import (
    BACKWARD,
    FULL,
    _named,
    _states,
    basic_cell,
    has_layer_norm,
    single_step,
    whole_sequence,
)

NORMS = 20
"""The operand of the first gate's factors behind its normalization; its bias is added after it."""
EPSILON = 1e-8
"""What LiteRT adds to the variance."""


@row("UNIDIRECTIONAL_SEQUENCE_LSTM")
def float_sequence(c: Conversion) -> Result:
    c.attributes.expect("diagonal_recurrent_tensors", False, reason="weights are taken as matrices")
    if not has_layer_norm(c):
        return whole_sequence(c)
    return _sequence(c, _FloatCell)


@row("UNIDIRECTIONAL_SEQUENCE_LSTM", hybrid=True)
def hybrid_sequence(c: Conversion) -> Result:
    c.attributes.expect("diagonal_recurrent_tensors", False, reason="weights are taken as matrices")
    has_layer_norm(c)
    return _sequence(c, _HybridCell)


def _sequence(c: Conversion, kind: type[_SteppedCell]) -> Result:
    steps = 0 if c.flag("time_major") else 1
    cell, states = kind(c), _states(c, 1 - steps, 18, 19)
    return unrolled(c, cell.step, cell.of_input(c.required(0)), states, steps)


@row("LSTM")
def float_cell(c: Conversion) -> Result:
    """One step."""
    if c.choice("kernel_type", ("FULL", "BASIC"), "FULL") == "BASIC":
        return basic_cell(c)
    return _single(c, _FloatCell) if has_layer_norm(c) else single_step(c)


@row("LSTM", hybrid=True)
def hybrid_cell(c: Conversion) -> Result:
    """One step."""
    c.choice("kernel_type", ("FULL",), "FULL")
    has_layer_norm(c)
    return _single(c, _HybridCell)


def _single(c: Conversion, kind: type[_SteppedCell]) -> Result:
    cell, states = kind(c), _states(c, 0, 18, 19)
    h, memory = cell.step(cell.of_input(c.required(0)), *states)
    return c.named([h, h, memory])


@row("BIDIRECTIONAL_SEQUENCE_LSTM", hybrid=True)
def hybrid_bidirectional(c: Conversion) -> Result:
    """The second direction reads the auxiliary input where there is one."""
    if len(c.inputs) != 48:
        raise ModelError(f"it has {len(c.inputs)} operands, not 48", place=c.node.place)
    if any(name is not None for name in c.inputs[40:]):
        c.refuse("an auxiliary input of both directions, with weights of bytes, is not supported")
    time_major, merged = c.flag("time_major", True), c.flag("merge_outputs")
    steps, inputs = 0 if time_major else 1, [0, 0 if c.input(39) is None else 39]
    if merged and not time_major and c.type(0).dims[0] != 1:
        c.refuse("in batch-major order LiteRT reads merged states of the wrong sequence")
    cells = [_HybridCell(c, first) for first in (0, BACKWARD)]
    states = _states(c, 1 - steps, 35, 36, 37, 38)
    sequences: list[list[str]] = []
    ends: list[str] = []
    for i, (cell, x) in enumerate(zip(cells, inputs)):
        own_states, projected = states[2 * i : 2 * i + 2], cell.of_input(c.required(x))
        outputs, own_ends = steps_of(c, cell.step, projected, own_states, steps, bool(i))
        sequences.append(outputs)
        ends += own_ends
    names = iter(c.node.outputs)
    if merged:
        directions = [c.add("Concat", outputs, axis=steps) for outputs in sequences]
        results = [_named(c, "Concat", directions, names, axis=2)]
    else:
        results = [_named(c, "Concat", outputs, names, axis=steps) for outputs in sequences]
    return (*results, *(_named(c, "Identity", [end], names) for end in ends))


class _SteppedCell:
    """The weights of a cell and its steps. first: how far its operands lie behind those of an
    operator of one direction."""

    def __init__(self, c: Conversion, first: int = 0) -> None:
        self.c, self.first = c, first
        c.choice("fused_activation_function", ("TANH",), "NONE")
        self.coupled = c.input(first + 1) is None
        self.gates = [g for g in range(4) if g or not self.coupled]
        self.of_data, self.of_state = self._matrix(1), self._matrix(5)
        biases = [c.constant_input(first + 12 + g, "the bias") for g in self.gates]
        self.norms: dict[int, list[str]] = {}
        if len(c.inputs) in FULL and has_layer_norm(c):
            self.norms = {
                g: [c.required(NORMS + g), c.constant(bias)] for g, bias in zip(self.gates, biases)
            }
        self.bias = c.constant(np.concatenate(biases))
        self.peepholes = {
            g: self._vector(first + i)
            for g, i in ((0, 9), (1, 10), (3, 11))
            if c.input(first + i) is not None
        }
        self.cell_clip = c.scalar("cell_clip", 0.0)
        self.projection = None if c.input(first + 16) is None else self._weights([first + 16])
        if self.projection is None:
            c.attributes.irrelevant("proj_clip", "there is no projection")
        else:
            self.projection_clip = c.scalar("proj_clip", 0.0)

    def _weights(self, operands: list[int]) -> Any:
        """Matrices side by side, as `_product` takes them."""
        raise NotImplementedError

    def _product(self, x: str, weights: Any) -> str:
        """Rows of x times weights."""
        raise NotImplementedError

    def _vector(self, i: int) -> str:
        """Peepholes, float32."""
        raise NotImplementedError

    def _matrix(self, first: int) -> Any:
        return self._weights([self.first + first + g for g in self.gates])

    def of_input(self, x: str) -> str:
        """[..., gates units]: what the data give to the gates, with biases unless these come after
        a normalization."""
        product = self._product(x, self.of_data)
        return product if self.norms else self.c.add("Add", [self.bias, product])

    def _bounded(self, x: str, bound: float) -> str:
        if not bound:
            return x
        return self.c.add("Clip", [x, *(self.c.like(s * bound, x) for s in (-1, 1))])

    def _gate(self, g: int, sums: str, memory: str) -> str:
        c = self.c
        if g in self.peepholes:
            sums = c.add("Add", [sums, c.add("Mul", [memory, self.peepholes[g]])])
        if g in self.norms:
            sums = c.add("LayerNormalization", [sums, *self.norms[g]], axis=-1, epsilon=EPSILON)
        return c.add("Tanh" if g == 2 else "Sigmoid", [sums])

    def step(self, projected: str, h: str, memory: str) -> tuple[str, str]:
        """One step from what the data give: the state and the cell after it."""
        c = self.c
        sums = c.add("Add", [projected, self._product(h, self.of_state)])
        gate_sums = dict(zip(self.gates, c.split(sums, len(self.gates), 1)))
        forget, candidate = (self._gate(g, gate_sums[g], memory) for g in (1, 2))
        if self.coupled:
            enters = c.add("Sub", [c.like(1, forget), forget])
        else:
            enters = self._gate(0, gate_sums[0], memory)
        terms = [c.add("Mul", [forget, memory]), c.add("Mul", [enters, candidate])]
        memory = self._bounded(c.add("Add", terms), self.cell_clip)
        output = self._gate(3, gate_sums[3], memory)
        h = c.add("Mul", [output, c.add("Tanh", [memory])])
        if self.projection is not None:
            h = self._product(h, self.projection)
            if c.input(self.first + 17) is not None:
                h = c.add("Add", [c.required(self.first + 17), h])
            h = self._bounded(h, self.projection_clip)
        return h, memory


class _FloatCell(_SteppedCell):
    """Weights of float32."""

    def _weights(self, operands: list[int]) -> str:
        arrays = [self.c.constant_input(i, "the weights") for i in operands]
        return self.c.constant(np.ascontiguousarray(np.concatenate(arrays).T))

    def _product(self, x: str, weights: Any) -> str:
        return self.c.add("MatMul", [x, weights])

    def _vector(self, i: int) -> str:
        return self.c.required(i)


class _HybridCell(_SteppedCell):
    """Weights of bytes."""

    def __init__(self, c: Conversion, first: int = 0) -> None:
        self.symmetric = not c.flag("asymmetric_quantize_inputs")
        super().__init__(c, first)

    def _weights(self, operands: list[int]) -> tuple[str, np.ndarray]:
        """Matrices side by side, transposed, as int32, and a scale per column."""
        c, arrays, scales = self.c, [], []
        for i in operands:
            array = c.constant_input(i, "the weights")
            arrays.append(array.astype(np.int32))
            scales.append(np.full(len(array), self._scale(i)))
        matrix = np.ascontiguousarray(np.concatenate(arrays).T)
        return c.constant(matrix), np.concatenate(scales)

    def _vector(self, i: int) -> str:
        """Peepholes, which LiteRT turns into float32 before it multiplies."""
        codes = self.c.constant_input(i, "the peepholes")
        return self.c.constant(codes.astype(np.float32) * self._scale(i))

    def _scale(self, i: int) -> np.float32:
        scale, zero = of_tensor(self.c, f"input{i}")
        if zero or self.c.type(i).dtype != "int8":
            self.c.refuse(f"operand {i} of {self.c.type(i).dtype} with the zero point {zero}")
        return scale

    def _product(self, x: str, weights: Any) -> str:
        """Rows of float32 times weights: each row is quantized with a scale of its own."""
        c = self.c
        q, by_row = _quantized(c, x, c.rank(x) - 1, self.symmetric)
        return _scaled_product(c, q, weights[0], by_row, weights[1])
