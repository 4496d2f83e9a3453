"""Graphs written node by node with the reader's own message classes: no TensorFlow is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.tensorflow.messages import CLASSES


def empty() -> Any:
    return CLASSES["Graph"]()


def placeholder(graph: Any, name: str, shape: tuple[int, ...], dtype: int = 1) -> str:
    """An input; returns its name. A size of -1 is open."""
    holder = node(graph, name, "Placeholder", dtype=dtype)
    for size in shape:
        holder.attr["shape"].shape.dim.add(size=size)
    return name


def constant(graph: Any, name: str, value: np.ndarray) -> str:
    """A constant; returns its name."""
    dtype = {"float32": 1, "int32": 3, "bool": 10}[str(value.dtype)]
    node(graph, name, "Const", dtype=dtype, value=value)
    return name


def node(graph: Any, name: str, op: str, *inputs: str, **attributes: Any) -> Any:
    made = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        attribute = made.attr[key]
        if isinstance(value, str):
            attribute.s = value.encode()
        elif isinstance(value, bool):
            attribute.b = value
        elif isinstance(value, int):
            attribute.type = value
        elif isinstance(value, float):
            attribute.f = value
        elif isinstance(value, np.ndarray):
            attribute.tensor.dtype = {"float32": 1, "int32": 3, "bool": 10}[str(value.dtype)]
            for size in value.shape:
                attribute.tensor.tensor_shape.dim.add(size=size)
            attribute.tensor.tensor_content = value.tobytes()
        else:
            attribute.list.i.extend(value)
    return made
