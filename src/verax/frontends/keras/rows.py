"""The table's registry, and what rows of several families share: activations, weights, layouts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.channels_last import channels_back, channels_first
from verax.frontends.common.context import Applied, Conversion, Result, Row
from verax.frontends.common.ledger import Attributes, Ledger
from verax.frontends.common.table import Table
from verax.frontends.keras.calls import plain
from verax.frontends.keras.domains import domain_of

TRAINING = "it matters in training only"

IRRELEVANT = {
    "name": "it names the value",
    "trainable": "it matters in training only",
    "batch_input_shape": "the input of the model has the shape",
    "batch_shape": "the input of the model has the shape",
    "input_length": "the input of the model has the shape",
    "input_dim": "the weights have the shape",
    "seed": "it matters in training only",
    "synchronized": "it matters in training only",
    "call.training": "this is inference",
}
IRRELEVANT_ENDINGS = {
    "_initializer": "the file has the values",
    "_regularizer": "it matters in training only",
    "_constraint": "it matters in training only",
}


def _without_weights(function: Row) -> Row:
    def convert(c: Conversion) -> Result:
        c.attributes.irrelevant("name", IRRELEVANT["name"])
        weights(c, 0)
        return function(c)

    return convert


def _with_common(function: Row) -> Row:
    """The row, with what every layer's configuration has read first."""

    def convert(c: Conversion) -> Result:
        a = c.attributes
        for name, reason in IRRELEVANT.items():
            a.irrelevant(name, reason)
        for name in a.values:
            for ending, reason in IRRELEVANT_ENDINGS.items():
                if name.endswith(ending):
                    a.irrelevant(name, reason)
        a.expect("dtype", "float32", reason="only float32 layers are supported")
        return function(c)

    return convert


TABLE = Table(wrap=_with_common)
"""Rows of layers by (domain, class); operations of `keras.ops` have domain "ops"."""
OPERATIONS = Table("ops", _without_weights)
"""Operations of `keras.ops`, which have no weights; `table` puts them into `TABLE`."""
row, operation = TABLE.row, OPERATIONS.row


def weights(c: Conversion, count: int) -> list[str]:
    """Names of the layer's weights, of which the configuration calls for `count`."""
    stored = c.integer("weights", 0)
    if stored != count:
        raise ModelError(
            f"the layer needs {count} weights, the file has {stored}", place=c.node.place
        )
    return [c.required(len(c.inputs) - count + i) for i in range(count)]


def array_of(c: Conversion, value: str) -> np.ndarray:
    """A weight as an array."""
    return c.builder.constants[value]


def only_input(c: Conversion) -> str:
    """The one tensor that a layer without weights is called on."""
    weights(c, 0)
    return data_input(c, 0)


def data_input(c: Conversion, weight_count: int) -> str:
    """The one tensor that a layer with this many weights is called on."""
    if len(c.inputs) != 1 + weight_count:
        raise ModelError(f"it is called on {len(c.inputs) - weight_count} tensors",
                         place=c.node.place)  # fmt: skip
    return c.required(0)


MAX_PIECES = 100_000
"""Most nodes or indices that one layer may be written out in."""


class LayerLayout:
    """Where a layer has its channels, by `data_format`; moves values to channels-first and back."""

    def __init__(self, c: Conversion) -> None:
        self.c = c
        data_format = c.choice("data_format", ("channels_last", "channels_first"), "channels_last")
        self.last = data_format == "channels_last"

    def first(self, value: str) -> str:
        """The value with its channels on axis 1."""
        return channels_first(self.c, value) if self.last else value

    def back(self, value: str) -> str:
        """The value with its channels where the layer has them."""
        return channels_back(self.c, value) if self.last else value


def gives_more(c: Conversion, attribute: str) -> bool:
    """A flag that says whether there are outputs behind the first."""
    if len(c.node.outputs) == 1:
        c.attributes.irrelevant(attribute, "no output behind the first is used")
        return False
    return c.flag(attribute)


PLAIN_ACTIVATIONS = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus",
    "softsign": "Softsign", "exponential": "Exp", "mish": "Mish",
    "hard_swish": "HardSwish", "hard_silu": "HardSwish",
}  # fmt: skip
"""Activations that Verax has as an operator without attributes."""
ACTIVATION_FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "elu": ("Elu", {"alpha": 1.0}),
    "selu": ("Selu", {}),
    "swish": ("Swish", {"alpha": 1.0}),
    "silu": ("Swish", {"alpha": 1.0}),
    "softmax": ("Softmax", {"axis": -1}),
    "log_softmax": ("LogSoftmax", {"axis": -1}),
    "gelu": ("Gelu", {"approximate": "none"}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}),
    "celu": ("Celu", {"alpha": 1.0}),
    "hard_shrink": ("Shrink", {"bias": 0.0, "lambd": 0.5}),
    "soft_shrink": ("Shrink", {"bias": 0.5, "lambd": 0.5}),
    "sparse_sigmoid": ("HardSigmoid", {"alpha": 0.5, "beta": 0.5}),
}
"""Others: operator and attributes."""


COMPOSED: dict[str, Callable[[Conversion, str], Applied]] = {
    "relu6": formulas.relu6,
    "hard_tanh": formulas.hard_tanh,
    "log_sigmoid": formulas.log_sigmoid,
    "tanh_shrink": formulas.tanh_shrink,
    "squareplus": formulas.squareplus,
}
"""Activations of several operators."""
LAYER_ACTIVATIONS = ("Activation", "ELU", "LeakyReLU", "ReLU", "Softmax")
"""Layers that may stand for an activation."""


def activated(c: Conversion, value: str, attribute: str = "activation") -> str:
    """The value after the layer's activation, a name or a layer; Keras 2 and 3 differ in
    hard_sigmoid."""
    name = c.text(attribute, "linear")
    if name == "linear":
        return value
    if name in PLAIN_ACTIVATIONS:
        return c.add(PLAIN_ACTIVATIONS[name], [value])
    if name in ACTIVATION_FIELDS:
        kind, fields = ACTIVATION_FIELDS[name]
        return c.add(kind, [value], **fields)
    if name == "hard_sigmoid":
        slope = 1 / 6 if c.version >= 3 else 0.2
        return c.add("HardSigmoid", [value], alpha=slope, beta=0.5)
    if name in COMPOSED:
        return c.append(COMPOSED[name](c, value))
    layer = json.loads(name) if name.startswith("{") else {}
    kind = str(layer.get("class_name"))
    if kind not in LAYER_ACTIVATIONS or domain_of(layer):
        c.attributes.refuse(attribute, "there is no such activation in Verax")
    config = {k: plain(v) for k, v in layer["config"].items() if v is not None}
    output = c.fresh(f"{c.first_output}/{kind}")
    (result,) = apply_row(c, "", kind, [value], config, (output,))
    return result


def apply_row(
    c: Conversion,
    domain: str,
    kind: str,
    inputs: Sequence[str],
    options: Mapping[str, Any],
    outputs: tuple[str, ...],
) -> tuple[str, ...]:
    """Results of the row of a layer or operation without weights, in place of this node; the
    attribute that `options` come from is in the ledger."""
    attributes = {**options, "weights": 0}
    node = replace(c.node, op_type=kind, domain=domain, attributes=attributes, outputs=outputs)
    inner = Attributes(Ledger(), c.node.place, kind, attributes)
    layer = replace(c, node=node, inputs=tuple(inputs), attributes=inner)
    results = layer.outputs_of(TABLE[domain, kind](layer))
    inner.close()
    return results


def sizes(c: Conversion, name: str, rank: int, default: Sequence[int] | None = None) -> Any:
    """A list of `rank` integers; a single one stands for all of them."""
    value = c.attributes.get(name, default)
    value = (value,) * rank if type(value) is int else value
    if not isinstance(value, tuple) or len(value) != rank or any(type(v) is not int for v in value):
        raise ModelError(f"{name} is {value!r}, not {rank} integers", place=c.node.place)
    return value


def begins_and_ends(c: Conversion, name: str, rank: int) -> list[tuple[int, int]]:
    """(begin, end) per spatial axis, from pairs, from one number per axis, or from one number."""
    value = c.attributes.get(name)
    if rank == 1 and isinstance(value, tuple) and len(value) == 2:
        value = (value,)
    value = (value,) * rank if type(value) is int else value
    entries = [(v, v) if type(v) is int else v for v in value] if isinstance(value, tuple) else []
    numbers = [n for pair in entries for n in (pair if isinstance(pair, tuple) else (None,))]
    if len(numbers) != 2 * rank or any(type(n) is not int or n < 0 for n in numbers):
        raise ModelError(f"{name} is {value!r}, not {rank} pairs", place=c.node.place)
    return [(int(begin), int(end)) for begin, end in entries]


def spatial_rank(c: Conversion) -> int:
    """Spatial axes of a layer whose class ends in 1D, 2D or 3D somewhere."""
    return next(i for i in (1, 2, 3) if f"{i}D" in c.node.op_type)
