"""TFLite's LSTM on integers, as LiteRT's kernel of bytes with a 16-bit cell computes it.

Data, weights and the state are bytes, gates and the cell 16-bit integers, sums 32-bit. A sequence
is written out step by step, as every step rounds; what the input gives to the gates is one product
for all steps. Curves are tables of every 16-bit argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import centered, factors, of_tensor
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.table_recurrent import _named, _states
from verax.numerics.fixed_point_words import stepped_sigmoid, stepped_tanh

F = np.float32
GATES = ("input", "forget", "cell", "output")
WORDS = np.arange(-(1 << 15), 1 << 15)
MAX_STEPS = 1000
"""Steps that are written out, about 30 nodes each."""
Step: TypeAlias = Callable[[str, str, str], tuple[str, str]]


@row("UNIDIRECTIONAL_SEQUENCE_LSTM", quantized=True)
def sequence_lstm(c: Conversion) -> Result:
    """Operands as on floats. Intermediate tensor 4 says how the cell's output is rounded."""
    c.attributes.expect("diagonal_recurrent_tensors", False, reason="weights are taken as matrices")
    steps = 0 if c.flag("time_major") else 1
    states, cell = _byte_states(c, 1 - steps), _Cell(c)
    x = centered(c, 0, of_tensor(c, "input0")[1])
    return unrolled(c, cell.step, cell.of_input(x), states, steps)


def unrolled(
    c: Conversion, step: Step, projected: str, states: Sequence[str], steps: int
) -> Result:
    """The sequence of outputs, the state and the cell after it, written out step by step.

    step(what the data give to the gates, state, cell): the state and the cell after one step.
    projected: what they give in all steps, which lie along axis `steps`.
    """
    outputs, ends = steps_of(c, step, projected, states, steps)
    names = iter(c.node.outputs)
    return (
        _named(c, "Concat", outputs, names, axis=steps),
        *(_named(c, "Identity", [state], names) for state in ends),
    )


def steps_of(
    c: Conversion,
    step: Step,
    projected: str,
    states: Sequence[str],
    steps: int,
    backwards: bool = False,
) -> tuple[list[str], tuple[str, str]]:
    """As `unrolled`, perhaps from the last step to the first: the outputs of all steps, in the
    order of the data and with an axis for the step, and the state and the cell at the end."""
    h, memory = states
    count = c.known_size(0, steps, "the number of steps")
    c.check_count(count, MAX_STEPS, "steps")
    outputs = []
    for t in range(count)[:: -1 if backwards else 1]:
        now = c.add("Gather", [projected, c.constant(t, np.int64)], axis=steps)
        h, memory = step(now, h, memory)
        outputs.append(c.add("Unsqueeze", [h, c.ints((steps,))]))
    return outputs[:: -1 if backwards else 1], (h, memory)


@row("LSTM", quantized=True)
def lstm_cell(c: Conversion) -> Result:
    """One step of the same cell."""
    c.choice("kernel_type", ("FULL",), "FULL")
    states, cell = _byte_states(c, 0), _Cell(c)
    x = centered(c, 0, of_tensor(c, "input0")[1])
    h, memory = cell.step(cell.of_input(x), *states)
    return c.named([h, h, memory])


def _byte_states(c: Conversion, batch_axis: int) -> list[str]:
    """State and cell, once operands and options are ones that the kernel of bytes has."""
    c.choice("fused_activation_function", ("TANH",), "NONE")
    if any(c.input(i) is not None for i in range(20, 24)):
        c.refuse("layer normalisation inside of a quantised cell is not supported")
    states = _states(c, batch_axis, 18, 19)
    for i, dtype in ((0, "int8"), (18, "int8"), (19, "int16")):
        if c.type(i).dtype != dtype:
            c.refuse(f"operand {i} of {c.type(i).dtype}, not {dtype}")
    for i in range(4):
        for key in ("scale", "zero_point"):
            c.attributes.irrelevant(
                f"inner{i}.{key}", "gates without layer norm have 12 fraction bits"
            )
    return states


class _Cell:
    """The weights of a cell and its steps."""

    def __init__(self, c: Conversion) -> None:
        self.c = c
        (self.x_scale, self.x_zero), (self.h_scale, self.h_zero) = (
            of_tensor(c, f"input{i}") for i in (0, 18)
        )
        memory_scale, zero = of_tensor(c, "input19")
        exponent = round(math.log2(memory_scale))
        if zero or F(2.0**exponent) != memory_scale or not -15 <= exponent <= -9:
            c.refuse(f"a cell of the scale {memory_scale} with the zero point {zero}")
        self.exponent = exponent
        self.coupled = c.input(1) is None
        self.gates = [g for g in range(4) if g or not self.coupled]
        self.units = c.known_size(2, 0)
        self.hidden_scale, self.hidden_zero = of_tensor(c, "inner4")
        self.sigmoid = self._table(stepped_sigmoid(WORDS))
        self.tanh = self._table(stepped_tanh(WORDS))
        self.cell_tanh = self._table(stepped_tanh(WORDS, -exponent))
        self.recurrent = self._matrix(5, self.h_scale, self.h_zero, False)
        self.cell_clip = self._clip("cell_clip", memory_scale, 32767)
        self.peepholes = self._peepholes()
        self.projected = c.input(16) is not None
        if of_tensor(c, "output0") != (self.h_scale, self.h_zero):
            c.attributes.refuse("output0.scale", "the output is the state")
        if self.projected:
            scale, zero = of_tensor(c, "input16")
            if zero:
                c.refuse("projection weights with a zero point")
            self.proj_clip = self._clip("proj_clip", self.h_scale, 127)
            weights = c.constant_input(16, "the projection").astype(np.int32)
            bias = -self.hidden_zero * weights.sum(1, dtype=np.int32)
            if c.input(17) is not None:
                bias = bias + c.constant_input(17, "the bias").astype(np.int32)
                self._bias_scales(17)
            self.projection = c.constant(np.ascontiguousarray(weights.T))
            self.projection_bias = c.constant(bias.astype(np.int32))
            self.projection_factors = factors(c, float(F(scale * self.hidden_scale) / self.h_scale))
        else:
            c.attributes.irrelevant("proj_clip", "there is no projection")

    def _peepholes(self) -> dict[int, tuple[str, list[str]]]:
        """Weights and factors of what the cell gives to the input, forget and output gate."""
        c, peepholes = self.c, {}
        for g, i in ((0, 9), (1, 10), (3, 11)):
            if c.input(i) is None:
                continue
            if c.known_size(6, 1) != self.units:
                c.refuse("with peepholes and a projection LiteRT misreads the cell")
            scale, zero = of_tensor(c, f"input{i}")
            if zero or c.type(i).dtype != "int16":
                c.refuse(f"peepholes of {c.type(i).dtype} with the zero point {zero}")
            weights = c.constant_input(i, "the peepholes").astype(np.int32)
            factor = float(F(F(2.0**self.exponent) * scale) / F(2.0**-12))
            peepholes[g] = c.constant(weights), factors(c, factor)
        return peepholes

    def _bias_scales(self, i: int) -> None:
        for key in ("scale", "zero_point"):
            self.c.attributes.irrelevant(f"input{i}.{key}", "biases are added to sums as they are")

    def _clip(self, name: str, scale: np.float32, max_code: int) -> int:
        """A bound in units of a scale; 0: none."""
        bound = self.c.scalar(name, 0.0)
        return int(np.clip(bound / scale, -max_code - 1, max_code)) if bound else 0

    def _table(self, values: np.ndarray) -> str:
        return self.c.constant(values.astype(np.int32))

    def look_up(self, table: str, x: str) -> str:
        c = self.c
        index = c.add("Add", [c.cast(x, "int64"), c.constant(1 << 15, np.int64)])
        return c.add("Gather", [table, index], axis=0)

    def _matrix(
        self, first: int, scale: np.float32, zero: int, biased: bool
    ) -> tuple[str, str, list[str]]:
        """Weights [inputs, gates units], bias, and factors of the gates behind operand `first`."""
        c, gate_weights, biases, scales = self.c, [], [], []
        for g in self.gates:
            own, own_zero = of_tensor(c, f"input{first + g}")
            if own_zero or c.type(first + g).dtype != "int8":
                c.refuse(f"weights of {c.type(first + g).dtype} with the zero point {own_zero}")
            weights = c.constant_input(first + g, "the weights").astype(np.int32)
            bias = -zero * weights.sum(1, dtype=np.int32)
            if biased:
                bias = bias + c.constant_input(12 + g, "the bias").astype(np.int32)
                self._bias_scales(12 + g)
            gate_weights.append(weights)
            biases.append(bias)
            scales += [float(F(own * scale) / F(2.0**-12))] * self.units
        matrix = np.ascontiguousarray(np.concatenate(gate_weights).T)
        sums = np.concatenate(biases).astype(np.int32)
        return c.constant(matrix), c.constant(sums), factors(c, np.array(scales))

    def _gate_sums(self, x: str, gate_parameters: tuple[str, str, list[str]]) -> str:
        c, (weights, bias, scale) = self.c, gate_parameters
        sums = c.add("Add", [c.add("MatMul", [x, weights]), bias])
        fields = {"output_dtype": "int32", "rounding": "twice", "axis": -1}
        return c.add("Requantize", [sums, *scale], **fields)

    def of_input(self, x: str) -> str:
        """What the input gives to the gates; x less its zero point, which the biases of LiteRT
        hold."""
        y = self._gate_sums(x, self._matrix(1, self.x_scale, 0, True))
        return self._word(y)

    def _word(self, x: str) -> str:
        """Saturated to 16 bits, as int32."""
        c = self.c
        return c.add("Clip", [x, c.constant(-(1 << 15), np.int32), c.constant(32767, np.int32)])

    def product(self, a: str, b: str, shift: int) -> str:
        """round(a b / 2^shift), halves away from zero, of 16-bit numbers."""
        c = self.c
        products = c.add("Mul", [a, b])
        one = [c.constant(1 << 30, np.int32), c.constant(1 - shift, np.int32)]
        return c.add("Requantize", [products, *one], output_dtype="int32", rounding="twice")

    def _seen(self, gate: int, sums: str, memory: str) -> str:
        """A gate's sums with what the cell gives to it."""
        if gate not in self.peepholes:
            return sums
        c, (weights, factor) = self.c, self.peepholes[gate]
        own = c.add("Mul", [memory, weights])
        own = c.add("Requantize", [own, *factor], output_dtype="int32", rounding="twice")
        return self._word(c.add("Add", [sums, own]))

    def step(self, projected: str, h: str, memory: str) -> tuple[str, str]:
        """One step from what the input gives: the state and the cell after it."""
        c = self.c
        own = self._gate_sums(c.cast(h, "int32"), self.recurrent)
        sums = self._word(c.add("Add", [projected, own]))
        gate_sums = dict(zip(self.gates, c.split(sums, len(self.gates), 1)))
        memory = c.cast(memory, "int32")
        forget = self.look_up(self.sigmoid, self._seen(1, gate_sums[1], memory))
        new = self.look_up(self.tanh, gate_sums[2])
        if self.coupled:
            enters = c.add("Sub", [c.constant(32767, np.int32), forget])
        else:
            enters = self.look_up(self.sigmoid, self._seen(0, gate_sums[0], memory))
        remembered = self.product(forget, memory, 15)
        added = self.product(enters, new, 30 + self.exponent)
        total = self._word(c.add("Add", [remembered, added]))
        if self.cell_clip:
            ends = [c.constant(s * self.cell_clip, np.int32) for s in (-1, 1)]
            total = c.add("Clip", [total, *ends])
        output = self.look_up(self.sigmoid, self._seen(3, gate_sums[3], total))
        size = c.add("Mul", [output, self.look_up(self.cell_tanh, total)])
        factor = factors(c, float(F(2.0**-15) / self.hidden_scale * F(2.0**-15)))
        fields = {"output_dtype": "int8", "rounding": "twice"}
        y = c.add("Requantize", [size, *factor], zero_point=self.hidden_zero, **fields)
        if self.projected:
            wide = c.add("MatMul", [c.cast(y, "int32"), self.projection])
            wide = c.add("Add", [wide, self.projection_bias])
            y = c.add(
                "Requantize", [wide, *self.projection_factors], zero_point=self.h_zero, **fields
            )
            if self.proj_clip:
                y = c.add("Clip", [y, *(c.constant(s * self.proj_clip, np.int8) for s in (-1, 1))])
        return y, c.cast(total, "int16")
