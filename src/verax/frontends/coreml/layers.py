"""A CoreML layer's parameters as plain attributes, so that the ledger can hold each of them.

Names are those of NeuralNetwork.proto, with dots into nested messages: "same.asymmetryMode". A
choice between messages is an attribute of its own: "ConvolutionPaddingType" = "same".
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from verax.base.errors import ModelError
from verax.frontends.coreml.messages import MAX_DEPTH, enum_name, refuse_unknown
from verax.frontends.coreml.weights import read_weights

LISTED = ("ActivationParams", "LSTMWeightParams")
"""Messages that layers hold lists of; item 2's field a is the attribute "list.2.a"."""


class Nested:
    """An attribute that no supported layer reads: a list of messages, or a whole network."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"a nested {self.kind}"


def attributes_of(
    message: Message, location: str, prefix: str = "", depth: int = 0
) -> dict[str, Any]:
    """The fields that a message sets; what it leaves unset has the format's default.

    Raises `ModelError` for fields and enum values that the format does not know.
    """
    if depth > MAX_DEPTH:
        raise ModelError("messages are nested too deeply", place=location)
    refuse_unknown(message, location)
    attributes: dict[str, Any] = {}
    for field, value in message.ListFields():
        name, choice = prefix + field.name, field.containing_oneof
        if choice is not None:
            attributes[prefix + choice.name] = field.name
        if field.type == field.TYPE_ENUM:
            many = not isinstance(value, int)
            names = [enum_name(field, v, location) for v in (value if many else [value])]
            attributes[name] = tuple(names) if many else names[0]
        elif field.type != field.TYPE_MESSAGE:
            attributes[name] = (
                value if isinstance(value, int | float | str | bytes) else tuple(value)
            )
        elif field.message_type.name == "WeightParams":
            refuse_unknown(value, location)
            attributes[name] = read_weights(value, f"{name} of {location}")
            if value.isUpdatable:
                attributes[f"{name}.isUpdatable"] = True
        elif field.message_type.name == "BorderAmounts":
            refuse_unknown(value, location)
            attributes[name] = tuple((e.startEdgeSize, e.endEdgeSize) for e in value.borderAmounts)
        elif isinstance(value, Message) and field.message_type.name != "NeuralNetwork":
            attributes |= attributes_of(value, location, f"{name}.", depth + 1)
        elif field.message_type.name in LISTED:
            for i, item in enumerate(value):
                attributes |= attributes_of(item, location, f"{name}.{i}.", depth + 1)
        else:
            attributes[name] = Nested(field.message_type.name)
    return attributes
