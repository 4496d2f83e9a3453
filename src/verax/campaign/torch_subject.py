"""PyTorch as a correct subject on any graph: its operators run there, all others in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities
from verax.reference.evaluate import evaluate_node

Function = Callable[[Any, Any, list[Any]], Any]
"""(torch, operator, tensors) -> tensor."""
PLAIN_ACTIVATIONS = {
    "Relu": "relu",
    "HardSwish": "hardswish",
    "Mish": "mish",
    "Selu": "selu",
    "Softplus": "softplus",
    "Softsign": "softsign",
}
PLAIN_FUNCTIONS = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Max": "maximum",
    "Min": "minimum",
    "Abs": "abs",
    "Neg": "neg",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Erf": "erf",
    "MatMul": "matmul",
}


def _conv(torch: Any, op: Any, t: list[Any]) -> Any:
    x, w, b = (*t, None)[:3]
    windows = op.spatial(TensorType.of(x.numpy()), TensorType.of(w.numpy()))
    flat = [p for pair in reversed(windows.pads) for p in pair]
    f = torch.nn.functional
    return f.conv2d(f.pad(x, flat), w, b, windows.strides, 0, windows.dilations, op.groups)


def _conv_transpose(torch: Any, op: Any, t: list[Any]) -> Any:
    """Without pads, then cropped; what output_padding adds holds the bias."""
    x, w, b = (*t, None)[:3]
    windows = op.spatial(TensorType.of(x.numpy()), TensorType.of(w.numpy()))
    f = torch.nn.functional
    y = f.conv_transpose2d(x, w, None, windows.strides, 0, 0, op.groups, windows.dilations)
    extra = op.output_padding or (0,) * len(windows.pads)
    crop = [
        v
        for (begin, end), e in zip(reversed(windows.pads), reversed(extra))
        for v in (-begin, e - end)
    ]
    y = f.pad(y, crop)
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def _batch_norm(torch: Any, op: Any, t: list[Any]) -> Any:
    x, scale, shift, mean, variance = t
    return torch.nn.functional.batch_norm(x, mean, variance, scale, shift, eps=op.epsilon)


def _group_norm(torch: Any, op: Any, t: list[Any]) -> Any:
    return torch.nn.functional.instance_norm(t[0], weight=t[1], bias=t[2], eps=op.epsilon)


def _layer_norm(torch: Any, op: Any, t: list[Any]) -> Any:
    if op.axis not in (-1, t[0].ndim - 1):
        raise NotImplementedError
    return torch.nn.functional.layer_norm(t[0], t[0].shape[-1:], t[1], t[2], op.epsilon)


def _gemm(torch: Any, op: Any, t: list[Any]) -> Any:
    a, b = (t[0].T if op.trans_a else t[0]), (t[1].T if op.trans_b else t[1])
    if len(t) < 3:
        return op.alpha * (a @ b)
    return torch.addmm(t[2], a, b, beta=op.beta, alpha=op.alpha)


def _max_pool(torch: Any, op: Any, t: list[Any]) -> Any:
    windows = op.spatial(TensorType.of(t[0].numpy()))
    if op.ceil_mode:
        raise NotImplementedError
    f = torch.nn.functional
    flat = [p for pair in reversed(windows.pads) for p in pair]
    padded = f.pad(t[0], flat, value=-float("inf"))
    return f.max_pool2d(padded, windows.kernel_shape, windows.strides, 0, windows.dilations)


def _average_pool(torch: Any, op: Any, t: list[Any]) -> Any:
    windows = op.spatial(TensorType.of(t[0].numpy()))
    uneven = any(b != e for b, e in windows.pads)
    wide = any(2 * b > k for (b, _), k in zip(windows.pads, windows.kernel_shape))
    if op.ceil_mode or uneven or wide or max(windows.dilations) > 1:
        raise NotImplementedError
    return torch.nn.functional.avg_pool2d(
        t[0],
        windows.kernel_shape,
        windows.strides,
        [b for b, _ in windows.pads],
        count_include_pad=op.count_include_pad,
    )


def _lrn(torch: Any, op: Any, t: list[Any]) -> Any:
    return torch.nn.functional.local_response_norm(t[0], op.size, op.alpha, op.beta, op.bias)


def _softmax(torch: Any, op: Any, t: list[Any]) -> Any:
    if op.flatten:
        raise NotImplementedError
    return torch.softmax(t[0], op.axis)


FUNCTIONS: dict[str, Function] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "Gemm": _gemm,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LRN": _lrn,
    "Softmax": _softmax,
    "GlobalAveragePool": lambda torch, op, t: t[0].mean((2, 3), keepdim=True),
    "LeakyRelu": lambda torch, op, t: torch.nn.functional.leaky_relu(t[0], op.alpha),
    "Elu": lambda torch, op, t: torch.nn.functional.elu(t[0], op.alpha),
    "Gelu": lambda torch, op, t: torch.nn.functional.gelu(t[0], approximate=op.approximate),
}
"""How PyTorch computes each operator; NotImplementedError where a form is missing there."""


class TorchSubject:
    """Every node by PyTorch where it can, else by float32 NumPy; shows all values."""

    name = "torch"
    capabilities = Capabilities(watches=True, truncates=True)
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self) -> None:
        self.torch = optional("torch", "to run networks in PyTorch")

    def describe(self) -> dict[str, str]:
        return {"version": str(self.torch.__version__)}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values = {**graph.constants, **inputs}
        with self.torch.no_grad():
            for node in graph.nodes:
                arrays = [None if v is None else values[v] for v in node.inputs]
                values.update(zip(node.outputs, self._outputs(graph, node, arrays)))
        names = {*graph.outputs, *(keep or ())}
        return {v: values[v] for v in values if v in names}

    def _outputs(self, graph: Graph, node: Node, arrays: list[Any]) -> tuple[np.ndarray, ...]:
        floats = all(a is None or a.dtype == np.float32 for a in arrays)
        images = arrays[0] is not None and arrays[0].ndim == 4
        kind = node.op.kind
        if floats and (images or kind not in FUNCTIONS or kind in ("Gemm", "Softmax")):
            try:
                return (self._in_torch(node, arrays),)
            except NotImplementedError:
                pass
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        return evaluate_node(node, arrays, types, graph.output_types(node), np.float32)

    def _in_torch(self, node: Node, arrays: list[Any]) -> np.ndarray:
        torch, kind = self.torch, node.op.kind
        tensors = [None if a is None else torch.from_numpy(np.array(a)) for a in arrays]
        if kind in PLAIN_FUNCTIONS and len(tensors) <= 2:
            result = getattr(torch, PLAIN_FUNCTIONS[kind])(*tensors)
        elif kind in PLAIN_ACTIVATIONS:
            result = getattr(torch.nn.functional, PLAIN_ACTIVATIONS[kind])(*tensors)
        elif kind in FUNCTIONS:
            result = FUNCTIONS[kind](torch, node.op, tensors)
        else:
            raise NotImplementedError
        return np.ascontiguousarray(result.numpy())
