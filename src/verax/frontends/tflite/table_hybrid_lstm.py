"""TFLite's LSTM on floating-point data with weights of bytes: dynamic-range quantization.

LiteRT quantizes each row of the data, of the state and of what is projected while it runs, sums
exact integers, and scales the sums back in float32. As every step rounds, a sequence is written out
step by step; what the data give to the gates is one product for all steps.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import of_tensor
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.table_hybrid import _quantized, _scaled_product
from verax.frontends.tflite.table_quantized_lstm import unrolled
from verax.frontends.tflite.table_recurrent import _must_be_full, _states


@row("UNIDIRECTIONAL_SEQUENCE_LSTM", hybrid=True)
def sequence_lstm(c: Conversion) -> Result:
    c.attributes.expect("diagonal_recurrent_tensors", False, reason="weights are taken as matrices")
    steps = 0 if c.flag("time_major") else 1
    cell, states = _HybridCell(c), _states(c, 1 - steps, 18, 19)
    return unrolled(c, cell.step, cell.of_input(c.required(0)), states, steps)


@row("LSTM", hybrid=True)
def lstm_cell(c: Conversion) -> Result:
    """One step."""
    c.choice("kernel_type", ("FULL",), "FULL")
    cell, states = _HybridCell(c), _states(c, 0, 18, 19)
    h, memory = cell.step(cell.of_input(c.required(0)), *states)
    return c.named([h, h, memory])


class _HybridCell:
    """The weights of a cell and its steps; operands as on floats."""

    def __init__(self, c: Conversion) -> None:
        self.c = c
        _must_be_full(c)
        c.choice("fused_activation_function", ("TANH",), "NONE")
        self.symmetric = not c.flag("asymmetric_quantize_inputs")
        self.coupled = c.input(1) is None
        self.gates = [g for g in range(4) if g or not self.coupled]
        self.of_data, self.of_state = self._matrix(1), self._matrix(5)
        biases = [c.constant_input(12 + g, "the bias") for g in self.gates]
        self.bias = c.constant(np.concatenate(biases))
        self.peepholes = {
            g: self._vector(i) for g, i in ((0, 9), (1, 10), (3, 11)) if c.input(i) is not None
        }
        self.cell_clip = c.scalar("cell_clip", 0.0)
        self.projection = None if c.input(16) is None else self._weights([16])
        if self.projection is None:
            c.attributes.irrelevant("proj_clip", "there is no projection")
        else:
            self.projection_clip = c.scalar("proj_clip", 0.0)

    def _weights(self, operands: list[int]) -> tuple[str, np.ndarray]:
        """Matrices side by side, transposed, as int32, and a scale per column."""
        c, arrays, scales = self.c, [], []
        for i in operands:
            array = c.constant_input(i, "the weights")
            arrays.append(array.astype(np.int32))
            scales.append(np.full(len(array), self._scale(i)))
        matrix = np.ascontiguousarray(np.concatenate(arrays).T)
        return c.constant(matrix), np.concatenate(scales)

    def _matrix(self, first: int) -> tuple[str, np.ndarray]:
        return self._weights([first + g for g in self.gates])

    def _vector(self, i: int) -> str:
        """Peepholes, which LiteRT turns into float32 before it multiplies."""
        codes = self.c.constant_input(i, "the peepholes")
        return self.c.constant(codes.astype(np.float32) * self._scale(i))

    def _scale(self, i: int) -> np.float32:
        scale, zero = of_tensor(self.c, f"input{i}")
        if zero or self.c.type(i).dtype != "int8":
            self.c.refuse(f"operand {i} of {self.c.type(i).dtype} with the zero point {zero}")
        return scale

    def _product(self, x: str, weights: tuple[str, np.ndarray]) -> str:
        """Rows of float32 times weights: each row is quantized with a scale of its own."""
        c = self.c
        q, by_row = _quantized(c, x, c.rank(x) - 1, self.symmetric)
        return _scaled_product(c, q, weights[0], by_row, weights[1])

    def of_input(self, x: str) -> str:
        """[..., gates units]: the biases, and what the data give to the gates."""
        return self.c.add("Add", [self.bias, self._product(x, self.of_data)])

    def _bounded(self, x: str, bound: float) -> str:
        if not bound:
            return x
        return self.c.add("Clip", [x, *(self.c.like(s * bound, x) for s in (-1, 1))])

    def _gate(self, g: int, sums: str, memory: str) -> str:
        c = self.c
        if g in self.peepholes:
            sums = c.add("Add", [sums, c.add("Mul", [memory, self.peepholes[g]])])
        return c.add("Sigmoid", [sums])

    def step(self, projected: str, h: str, memory: str) -> tuple[str, str]:
        """One step from what the data give: the state and the cell after it."""
        c = self.c
        sums = c.add("Add", [projected, self._product(h, self.of_state)])
        gate_sums = dict(zip(self.gates, c.split(sums, len(self.gates), 1)))
        forget, candidate = self._gate(1, gate_sums[1], memory), c.add("Tanh", [gate_sums[2]])
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
            if c.input(17) is not None:
                h = c.add("Add", [c.required(17), h])
            h = self._bounded(h, self.projection_clip)
        return h, memory
