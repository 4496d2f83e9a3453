"""Weights of CoreML NeuralNetwork layers: float32, float16, or quantized with 1 to 8 bits.

Quantized ones become float32 numbers here, as CoreML's formula says: scale * code + bias, per
tensor or per output channel, or an entry of a table. Source: `WeightParams`, `QuantizationParams`
of NeuralNetwork.proto; codes are packed from the highest bit on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError


@dataclass(frozen=True)
class Quantized:
    """Codes of quantized weights, one after the other, and how they become numbers.

    table: numbers by code, or empty; then scale and bias are, one or one per output channel.
    """

    raw: bytes
    bits: int
    scale: np.ndarray
    bias: np.ndarray
    table: np.ndarray

    def __repr__(self) -> str:
        scheme = "table" if self.table.size else "linear"
        return f"{self.bits}-bit weights ({scheme}), {len(self.raw)} bytes"

    def values(self, shape: tuple[int, ...], axis: int, location: str) -> np.ndarray:
        """The weights [*shape]; `axis` holds the output channels."""
        codes = self.codes(int(np.prod(shape, dtype=np.int64)), location)
        if self.table.size:
            return self.table[codes].reshape(shape)
        scale, bias = self.scale, self.bias if self.bias.size else np.zeros_like(self.scale)
        if scale.size not in (1, shape[axis]) or bias.size not in (1, shape[axis]):
            raise ModelError(
                f"{scale.size} scales and {bias.size} biases for {shape[axis]} output channels",
                place=location,
            )
        along = [1] * len(shape)
        along[axis] = -1
        numbers = codes.reshape(shape).astype(np.float32)
        return numbers * scale.reshape(along) + bias.reshape(along)

    def codes(self, count: int, location: str) -> np.ndarray:
        """`count` codes, uint8."""
        if len(self.raw) != -(-count * self.bits // 8):
            raise ModelError(
                f"{len(self.raw)} bytes hold no {count} weights of {self.bits} bits", place=location
            )
        raw = np.frombuffer(self.raw, np.uint8)
        if self.bits == 8:
            return raw
        bits = np.unpackbits(raw)[: count * self.bits].reshape(count, self.bits)
        return np.packbits(bits, axis=1).ravel() >> (8 - self.bits)


def read_weights(message: Any, location: str) -> np.ndarray | Quantized:
    """The content of a WeightParams message: a flat float32 array, or what makes one.

    Raises `ModelError` when it holds no kind or several, `UnsupportedError` for other kinds.
    """
    kinds = [n for n in ("floatValue", "float16Value", "rawValue", "int8RawValue")
             if len(getattr(message, n))]  # fmt: skip
    if len(kinds) != 1:
        raise ModelError(f"the weights are of {kinds or 'no kind'}", place=location)
    if kinds[0] == "floatValue":
        return floats(message)
    if kinds[0] == "float16Value":
        if len(message.float16Value) % 2:
            raise ModelError("float16 weights end in half a number", place=location)
        return np.frombuffer(message.float16Value, "<f2").astype(np.float32)
    form = message.quantization
    kind = form.WhichOneof("QuantizationType")
    if kinds[0] == "int8RawValue" or kind is None:
        raise UnsupportedError(
            "weights that are multiplied as integers, or raw ones, are not supported",
            place=location,
        )
    if not 1 <= form.numberOfBits <= 8:
        raise ModelError(f"weights of {form.numberOfBits} bits", place=location)
    bits, none = int(form.numberOfBits), np.zeros(0, np.float32)
    if kind == "lookupTableQuantization":
        table = floats(form.lookupTableQuantization)
        if table.size != 2**bits:
            raise ModelError(f"a table of {table.size} numbers for {bits} bits", place=location)
        return Quantized(message.rawValue, bits, none, none, table)
    scale, bias = (np.array(getattr(form.linearQuantization, n), np.float32)
                   for n in ("scale", "bias"))  # fmt: skip
    if not scale.size:
        raise ModelError("quantized weights have no scale", place=location)
    return Quantized(message.rawValue, bits, scale, bias, none)


def floats(message: Any) -> np.ndarray:
    """The field floatValue as an array, without making a Python number of each element.

    It is packed, so the serialized message holds its bytes in one piece.
    """
    count = len(message.floatValue)
    if count < 4096:
        return np.array(message.floatValue, np.float32)
    only = message
    if len(message.ListFields()) > 1:
        only = type(message)()
        only.floatValue.MergeFrom(message.floatValue)
    data = only.SerializeToString()
    return np.frombuffer(data, "<f4", count, len(data) - 4 * count)
