"""Functions of TensorFlow in functional models of Keras 2: `tf.concat(...)`, `x * 2`, `x[:, 0]`.

Keras 2 keeps such a call as a layer TFOpLambda (SlicingOpLambda for indexing) that names the
function; its first argument is what the layer is called on, the others stand by name. Each is the
operation of `keras.ops` of the same meaning, whose row converts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.calls import OPERAND
from verax.frontends.keras.rows import IRRELEVANT, TABLE, apply_row, weights

AXIS = {"axis": "axis"}
REDUCED = {"axis": "axis", "keepdims": "keepdims"}
FUNCTIONS: dict[str, tuple[str, Mapping[str, str]]] = {
    "__operators__.add": ("Add", {}),
    "math.add": ("Add", {}),
    "math.subtract": ("Subtract", {}),
    "math.multiply": ("Multiply", {}),
    "math.truediv": ("TrueDivide", {}),
    "math.divide": ("TrueDivide", {}),
    "math.maximum": ("Maximum", {}),
    "math.minimum": ("Minimum", {}),
    "math.pow": ("Power", {}),
    "linalg.matmul": ("Matmul", {}),
    "math.abs": ("Absolute", {}),
    "math.negative": ("Negative", {}),
    "math.exp": ("Exp", {}),
    "math.log": ("Log", {}),
    "math.sqrt": ("Sqrt", {}),
    "math.rsqrt": ("Rsqrt", {}),
    "math.square": ("Square", {}),
    "math.sigmoid": ("Sigmoid", {}),
    "math.tanh": ("Tanh", {}),
    "math.softplus": ("Softplus", {}),
    "nn.relu": ("Relu", {}),
    "nn.relu6": ("Relu6", {}),
    "nn.selu": ("Selu", {}),
    "nn.elu": ("Elu", {}),
    "nn.leaky_relu": ("LeakyRelu", {"alpha": "negative_slope"}),
    "nn.softmax": ("Softmax", AXIS),
    "math.reduce_mean": ("Mean", REDUCED),
    "math.reduce_sum": ("Sum", REDUCED),
    "math.reduce_max": ("Max", REDUCED),
    "math.reduce_min": ("Min", REDUCED),
    "reshape": ("Reshape", {"shape": "newshape"}),
    "transpose": ("Transpose", {"perm": "axes"}),
    "concat": ("Concatenate", AXIS),
    "stack": ("Stack", AXIS),
    "expand_dims": ("ExpandDims", AXIS),
    "squeeze": ("Squeeze", AXIS),
    "tile": ("Tile", {"multiples": "repeats"}),
    "cast": ("Cast", {"dtype": "dtype"}),
    "clip_by_value": ("Clip", {"clip_value_min": "x_min", "clip_value_max": "x_max"}),
    "nn.depth_to_space": ("DepthToSpace", {"block_size": "block_size"}),
    "nn.space_to_depth": ("SpaceToDepth", {"block_size": "block_size"}),
}
"""The operation of a function, and what its arguments are called there."""
DEFAULTS = {"nn.softmax": {"axis": -1}, "stack": {"axis": 0}}
"""Arguments that the function has when they are not given, where the operation has others."""
SECOND = ("y", "b")
"""Names of a second tensor or number."""


def _common(c: Conversion) -> None:
    for name in ("name", "trainable", "call.name"):
        c.attributes.irrelevant(name, IRRELEVANT.get(name, IRRELEVANT["name"]))
    c.attributes.expect("dtype", "float32", reason="only float32 layers are supported")
    weights(c, 0)


def function(c: Conversion) -> Result:
    """A TFOpLambda."""
    a = c.attributes
    _common(c)
    name = a.text("function", "")
    if name not in FUNCTIONS:
        c.refuse(f"the function tf.{name} is not supported")
    kind, names = FUNCTIONS[name]
    inputs = c.operands
    for key in (f"call.{n}" for n in SECOND):
        argument = a.get(key)
        if isinstance(argument, str):
            if argument != f"{OPERAND}{len(inputs) - 1}":
                a.refuse(key, "it is not the second tensor")
        elif argument is not None:
            dtype = np.float32 if np.array(argument).dtype.kind == "f" else np.int32
            inputs.append(c.constant(argument, dtype))
    options = dict(DEFAULTS.get(name, {}))
    options |= {
        own: a.get(f"call.{theirs}") for theirs, own in names.items() if a.has(f"call.{theirs}")
    }
    return apply_row(c, "ops", kind, inputs, options, c.node.outputs)


def slicing(c: Conversion) -> Result:
    """A SlicingOpLambda: an index of numbers, slices, "..." and new axes."""
    _common(c)
    c.attributes.expect("function", "__operators__.getitem")
    stated = c.attributes.get("call.slice_spec")
    entries = stated if isinstance(stated, tuple) else (stated,)
    index = json.dumps([_index_entry(c, entry) for entry in entries])
    return apply_row(c, "ops", "GetItem", [c.required(0)], {"call.index": index}, c.node.outputs)


def _index_entry(c: Conversion, entry: Any) -> Any:
    """One part of an index, as `GetItem` has it."""
    if not isinstance(entry, str) or entry.startswith(OPERAND):
        return entry
    config = json.loads(entry)
    if config.get("class_name") == "__ellipsis__":
        return "..."
    if set(config) != {"start", "stop", "step"}:
        c.refuse(f"the index {entry}")
    return {"slice": [config["start"], config["stop"], config["step"]]}


TABLE["tf", "TFOpLambda"] = function
TABLE["tf", "SlicingOpLambda"] = slicing
