"""Files as Keras 2 wrote them, by hand: functions of TensorFlow, and layers that Keras 3 lacks.

What TensorFlow answers is computed from the very calls that the files hold.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
from tests.frontends.from_keras.h5_files import written

Call = tuple[str, tuple[str, ...], dict[str, Any]]
"""A function of TensorFlow, the layers that its first argument names, its other arguments; `@z` as
one of them is the tensor of a layer."""
WHOLE = {"start": None, "stop": None, "step": None}


def entry(kind: str, name: str, inbound: Any = (), **config: Any) -> dict[str, Any]:
    """A layer as Keras 2 writes it in a functional model."""
    return {"class_name": kind, "name": name, "config": {"name": name, **config},
            "inbound_nodes": list(inbound)}  # fmt: skip


def network(
    layers: list[Any], *outputs: list[Any], name: str = "net", inputs: int = 1
) -> dict[str, Any]:
    """A functional model's configuration; its inputs are the first layers."""
    config = {"name": name, "layers": layers, "output_layers": list(outputs),
              "input_layers": [[layer["name"], 0, 0] for layer in layers[:inputs]]}  # fmt: skip
    return {"class_name": "Functional", "config": config}


def tf_function(called: str, function: str, inbound: Any, **options: Any) -> dict[str, Any]:
    kind = "SlicingOpLambda" if function.endswith("getitem") else "TFOpLambda"
    config = {"function": function, "trainable": True, "dtype": "float32"}
    return entry(kind, called, [inbound] if isinstance(inbound[0], list) else
                 [[inbound[0], 0, 0, options]], **config)  # fmt: skip


INPUTS = {"x": (4, 6), "z": (1, 6)}
PAIRED = ("concat", "stack")
"""Functions whose first argument is a list of tensors."""
CALLS: dict[str, Call] = {
    "part": ("math.sigmoid", ("x",), {}),  # in 0 .. 1
    **{f: (f"math.{f}", ("part",), {}) for f in ("log", "sqrt", "rsqrt", "negative")},
    **{f: (f"math.{f}", ("x",), {}) for f in ("abs", "exp", "square", "tanh", "softplus")},
    **{f: (f"nn.{f}", ("x",), {}) for f in ("relu", "relu6", "selu", "elu")},
    "leaky": ("nn.leaky_relu", ("x",), {"alpha": 0.375}),
    "softmax": ("nn.softmax", ("x",), {"axis": 1}),
    "softmax of rows": ("nn.softmax", ("x",), {}),
    "more": ("__operators__.add", ("x",), {"y": 0.75}),
    "sum": ("math.add", ("x",), {"y": "@z"}),
    "difference": ("math.subtract", ("x",), {"y": "@z"}),
    "product": ("math.multiply", ("x",), {"y": 1.5}),
    "quotient": ("math.truediv", ("x",), {"y": 1.5}),
    "fraction": ("math.divide", ("x",), {"y": "@part"}),
    "maximum": ("math.maximum", ("x",), {"y": "@z"}),
    "minimum": ("math.minimum", ("x",), {"y": 0.5}),
    "power": ("math.pow", ("part",), {"y": 1.5}),
    "turned": ("transpose", ("x",), {"perm": [0, 2, 1]}),
    "matmul": ("linalg.matmul", ("x",), {"b": "@turned"}),
    "mean": ("math.reduce_mean", ("x",), {"axis": 1, "keepdims": True}),
    "total": ("math.reduce_sum", ("x",), {"axis": [1, 2], "keepdims": False}),
    "most": ("math.reduce_max", ("x",), {"axis": 2}),
    "least": ("math.reduce_min", ("x",), {"axis": 1}),
    "picture": ("reshape", ("x",), {"shape": [-1, 4, 2, 3]}),
    "deep": ("nn.space_to_depth", ("picture",), {"block_size": 2}),
    "wide": ("nn.depth_to_space", ("deep",), {"block_size": 2}),
    "concat": ("concat", ("x", "z"), {"axis": 1}),
    "stack": ("stack", ("x", "part"), {"axis": 2}),
    "stack in front": ("stack", ("x", "part"), {}),
    "expanded": ("expand_dims", ("x",), {"axis": 2}),
    "squeezed": ("squeeze", ("expanded",), {"axis": 2}),
    "tile": ("tile", ("x",), {"multiples": [1, 2, 3]}),
    "cast": ("cast", ("x",), {"dtype": "int32"}),
    "clip": ("clip_by_value", ("x",), {"clip_value_min": -0.75, "clip_value_max": 1.25}),
    "cut": ("__operators__.getitem", ("x",),
            {"slice_spec": [WHOLE, {"start": 1, "stop": None, "step": 2}, -2]}),
}  # fmt: skip
ADDED = {"RandomHeight": {"factor": 0.25}, "RandomWidth": {"factor": 0.25},
         "ThresholdedReLU": {"theta": 3.0}}  # fmt: skip
"""Layers that Keras 3 has no more."""


def inputs() -> list[dict[str, Any]]:
    return [entry("InputLayer", n, batch_input_shape=[None, *s]) for n, s in INPUTS.items()]


def functions() -> bytes:
    """A file of all calls; every one is an output."""
    layers = inputs()
    for name, (function, tensors, options) in CALLS.items():
        said = {k: [v[1:], 0, 0] if str(v).startswith("@") else v for k, v in options.items()}
        layers.append(tf_function(name, function, [[t, 0, 0, said] for t in tensors]))
    outputs = [[name, 0, 0] for name in CALLS]
    return written(network(layers, *outputs, inputs=len(INPUTS)), {}, "2.9.0")


def answers_of_functions(tf: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    values = {name: tf.constant(v) for name, v in given.items()}
    for name, (function, tensors, options) in CALLS.items():
        first = [values[t] for t in tensors]
        if function == "__operators__.getitem":
            key = [slice(*k.values()) if isinstance(k, dict) else k for k in options["slice_spec"]]
            values[name] = first[0][tuple(key)]
            continue
        said = {k: values[v[1:]] if str(v).startswith("@") else v for k, v in options.items()}
        called = attrgetter(function.replace("__operators__", "math"))(tf)
        values[name] = called(first if function in PAIRED else first[0], **said)
    return [np.asarray(values[name]) for name in CALLS]


def layers_gone() -> bytes:
    """A file of the layers that Keras 3 lacks; every one is an output."""
    added = [entry(k, k, [[["x", 0, 0, {}]]], **config) for k, config in ADDED.items()]
    outputs = [[name, 0, 0] for name in ADDED]
    return written(network([*inputs()[:1], *added], *outputs), {}, "2.9.0")


def answers_of_layers_gone(tf: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """At inference the random ones pass x on; the third passes on what exceeds theta."""
    x = given["x"]
    return [x, x, np.where(x > ADDED["ThresholdedReLU"]["theta"], x, np.float32(0))]


FILES: dict[str, tuple[Callable[[], bytes], Callable[..., list[np.ndarray]], int]] = {
    "Keras 2 functions": (functions, answers_of_functions, 2),
    "Keras 2 layers": (layers_gone, answers_of_layers_gone, 1),
}
"""By label: the file, the answers for named inputs, how many of `INPUTS` it has."""
