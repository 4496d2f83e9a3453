"""ONNX recurrent layers: RNN, GRU, LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.onnx.rows import row
from verax.ops.recurrent.activations import ONNX_CURVES, UNSTATED, curve, takes

DIRECTIONS = ("forward", "reverse", "bidirectional")
CASES = {name.lower(): name for name in ONNX_CURVES}
"""Names of activations are read whatever their case, as ONNX Runtime does."""


@row("RNN")
def rnn(c: Conversion) -> Result:
    return _recurrent(c)


@row("GRU")
def gru(c: Conversion) -> Result:
    return _recurrent(c, linear_before_reset=c.flag("linear_before_reset"))


@row("LSTM")
def lstm(c: Conversion) -> Result:
    return _recurrent(c, input_forget=c.flag("input_forget"))


def _recurrent(c: Conversion, **more: Any) -> Result:
    a = c.attributes
    direction = a.text("direction", "forward").lower()
    if direction not in DIRECTIONS:
        a.refuse("direction", f"supported: {', '.join(DIRECTIONS)}")
    a.irrelevant("output_sequence", "naming an output asks for it")
    names = tuple(CASES.get(n.lower(), n) for n in a.texts("activations", ()))
    for name in names:
        if name not in ONNX_CURVES:
            a.refuse("activations", f"unknown activation {name!r}; ONNX has {ONNX_CURVES}")
    return c.operator(
        c.node.op_type,
        direction=direction,
        hidden_size=a.integer("hidden_size", 0),
        activations=names,
        activation_alpha=_numbers(c, names, "alpha"),
        activation_beta=_numbers(c, names, "beta"),
        clip=a.scalar("clip"),
        layout=a.integer("layout", 0),
        **more,
    )


def _numbers(c: Conversion, names: tuple[str, ...], key: str) -> tuple[float, ...]:
    """alpha or beta of each activation. ONNX lists those of activations that take one, in order;
    activations behind the end of the list have their defaults."""
    attribute = f"activation_{key}"
    stated = [float(np.float32(v)) for v in c.attributes.numbers(attribute, ())]
    taking = [name for name in names if key in takes(name)]
    if len(stated) > len(taking):
        c.attributes.refuse(attribute, f"{len(taking)} of the activations take one")
    for name in taking[len(stated) :]:
        if name in UNSTATED:
            c.refuse(f"{name} without its {key}, for which ONNX has no default")
    if not stated:
        return ()
    stated += [getattr(curve(name), key) for name in taking[len(stated) :]]
    numbers = iter(stated)
    return tuple(next(numbers) if key in takes(name) else 0.0 for name in names)
