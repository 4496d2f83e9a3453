"""The function of PyTorch that means the same as an operator, where there is one.

`twin(case, wanted)` is a call of it, eager, without gradients, on tensors that are made beforehand.
What PyTorch gives as a view is copied, because Verax and ONNX Runtime give arrays of their own. An
operator that takes PyTorch several calls has no twin, nor has one whose twin gives other numbers
for the case at hand: that is found by comparing, not promised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.ir.operator import Case

Twin = Callable[[Any, Any, Sequence[Any]], Any]
"""(torch, the operator, tensors) -> tensors."""
CLOSE = 1e-3
"""Of the largest value: from here on it is another function."""


@cache
def _function(path: str) -> Callable[..., Any]:
    return operator.attrgetter(path)(optional("torch", "to compare operators with"))


def _named(path: str) -> Twin:
    """torch.`path` of all tensors."""
    return lambda torch, op, xs: _function(path)(*xs)


def _last(path: str, **extra: Any) -> Twin:
    """torch.`path` along the operator's axis."""
    return lambda torch, op, xs: _function(path)(xs[0], dim=op.axis, **extra)


def _recurrent(kind: str, gates: Sequence[int]) -> Twin:
    """A module with the same weights; ONNX orders gates differently. Its time is its call's."""
    made: dict[int, Any] = {}

    def call(torch: Any, op: Any, xs: Sequence[Any]) -> Any:
        x, w, r = xs
        module = made.get(id(w))
        if module is None:
            hidden = r.shape[-1]
            module = made[id(w)] = getattr(torch.nn, kind)(x.shape[-1], hidden, bias=False)
            for given, own in ((w, module.weight_ih_l0), (r, module.weight_hh_l0)):
                parts = given[0].split(hidden)
                own.data.copy_(torch.cat([parts[g] for g in gates]))
        return module(x)[0].unsqueeze(1)

    return call


def _pool(name: str, **extra: Any) -> Twin:
    def call(torch: Any, op: Any, xs: Sequence[Any]) -> Any:
        function = getattr(torch.nn.functional, name)
        return function(xs[0], op.kernel_shape, op.strides or 1, **extra)

    return call


SAME = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "And": "logical_and",
    "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitShift": "bitwise_left_shift", "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Div": "div", "Elu": "nn.functional.elu", "Celu": "nn.functional.celu",
    "Equal": "eq", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Gemm": "mm",
    "Greater": "gt", "GreaterOrEqual": "ge", "HardSwish": "nn.functional.hardswish",
    "Identity": "clone", "Dropout": "clone", "Max": "clone", "Min": "clone", "Mean": "clone",
    "Sum": "clone", "Clip": "clone", "IsInf": "isinf", "IsNaN": "isnan", "Less": "lt",
    "LessOrEqual": "le", "Log": "log", "MatMul": "matmul", "Mish": "nn.functional.mish",
    "Mod": "remainder", "Mul": "mul", "Neg": "neg", "NonZero": "nonzero", "Not": "logical_not",
    "Or": "logical_or", "Pow": "pow", "Reciprocal": "reciprocal", "ReduceMax": "amax",
    "ReduceMin": "amin", "ReduceMean": "mean", "ReduceProd": "prod", "ReduceSum": "sum",
    "ReduceL2": "linalg.vector_norm", "Relu": "relu", "Round": "round", "Rsqrt": "rsqrt",
    "Selu": "nn.functional.selu", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softplus": "nn.functional.softplus", "Softsign": "nn.functional.softsign",
    "Sqrt": "sqrt", "Sub": "sub", "Swish": "nn.functional.silu", "Tan": "tan", "Tanh": "tanh",
    "Where": "where", "Xor": "logical_xor", "Unique": "unique", "Trilu": "triu",
}  # fmt: skip
"""Operator: the function of the same tensors. (A Max of one tensor is that tensor.)"""

TWINS: dict[str, Twin] = {
    **{name: _named(path) for name, path in SAME.items()},
    "ArgMax": _last("argmax", keepdim=True),
    "ArgMin": _last("argmin", keepdim=True),
    "AffineGrid": lambda torch, op, xs: torch.nn.functional.affine_grid(
        xs[0], [int(n) for n in xs[1]], align_corners=op.align_corners
    ),
    "AveragePool": _pool("avg_pool2d"),
    "BatchNormalization": lambda torch, op, xs: torch.nn.functional.batch_norm(
        xs[0], xs[3], xs[4], xs[1], xs[2], eps=op.epsilon
    ),
    "Cast": lambda torch, op, xs: xs[0].to(getattr(torch, str(op.to))),
    "Concat": lambda torch, op, xs: torch.cat(xs, op.axis),
    "ConstantOfShape": lambda torch, op, xs: torch.full([int(n) for n in xs[0]], op.value),
    "Conv": lambda torch, op, xs: torch.nn.functional.conv2d(*xs, padding=1),
    "ConvTranspose": lambda torch, op, xs: torch.nn.functional.conv_transpose2d(*xs, padding=1),
    "CumProd": lambda torch, op, xs: torch.cumprod(xs[0], int(xs[1])),
    "CumSum": lambda torch, op, xs: torch.cumsum(xs[0], int(xs[1])),
    "Einsum": lambda torch, op, xs: torch.einsum(op.equation, *xs),
    "Expand": lambda torch, op, xs: xs[0].expand([int(n) for n in xs[1]]).contiguous(),
    "EyeLike": lambda torch, op, xs: torch.eye(*xs[0].shape),
    "Flatten": lambda torch, op, xs: xs[0].flatten(op.axis).clone(),
    "GRU": _recurrent("GRU", (1, 0, 2)),
    "Gather": lambda torch, op, xs: xs[0][xs[1]],
    "GatherElements": lambda torch, op, xs: torch.gather(xs[0], op.axis, xs[1]),
    "Gelu": lambda torch, op, xs: torch.nn.functional.gelu(xs[0], approximate=op.approximate),
    "GlobalAveragePool": lambda torch, op, xs: torch.nn.functional.adaptive_avg_pool2d(xs[0], 1),
    "GlobalMaxPool": lambda torch, op, xs: torch.amax(xs[0], (2, 3), keepdim=True),
    "GridSample": lambda torch, op, xs: torch.nn.functional.grid_sample(
        *xs, padding_mode=op.padding_mode, align_corners=op.align_corners
    ),
    "GroupNormalization": lambda torch, op, xs: torch.nn.functional.group_norm(
        xs[0], op.num_groups, *xs[1:], eps=op.epsilon
    ),
    "InstanceNormalization": lambda torch, op, xs: torch.nn.functional.instance_norm(
        xs[0], None, None, *xs[1:], eps=op.epsilon
    ),
    "LRN": lambda torch, op, xs: torch.nn.functional.local_response_norm(
        xs[0], op.size, op.alpha, op.beta, op.bias
    ),
    "LSTM": _recurrent("LSTM", (0, 2, 3, 1)),
    "LayerNormalization": lambda torch, op, xs: torch.nn.functional.layer_norm(
        xs[0], xs[1].shape, *xs[1:], eps=op.epsilon
    ),
    "LeakyRelu": lambda torch, op, xs: torch.nn.functional.leaky_relu(xs[0], op.alpha),
    "LogSoftmax": _last("log_softmax"),
    "LpNormalization": lambda torch, op, xs: torch.nn.functional.normalize(xs[0], op.p, op.axis),
    "MaxPool": _pool("max_pool2d"),
    "PRelu": lambda torch, op, xs: torch.where(xs[0] < 0, xs[0] * xs[1], xs[0]),
    "RMSNormalization": lambda torch, op, xs: torch.nn.functional.rms_norm(
        xs[0], xs[1].shape, xs[1], op.epsilon
    ),
    "RNN": _recurrent("RNN", (0,)),
    "Range": lambda torch, op, xs: torch.arange(*(float(x) for x in xs)),
    "ReduceL1": lambda torch, op, xs: torch.linalg.vector_norm(xs[0], 1),
    "ReduceLogSumExp": lambda torch, op, xs: torch.logsumexp(xs[0], (0, 1, 2)),
    "Reshape": lambda torch, op, xs: xs[0].reshape([int(n) for n in xs[1]]).clone(),
    "Resize": lambda torch, op, xs: torch.nn.functional.interpolate(
        xs[0], scale_factor=2, mode="bilinear"
    ),
    "ScatterElements": lambda torch, op, xs: xs[0].scatter(op.axis, xs[1], xs[2]),
    "ScatterND": lambda torch, op, xs: xs[0].index_put((xs[1][:, 0],), xs[2]),
    "Shrink": lambda torch, op, xs: torch.nn.functional.hardshrink(xs[0], op.lambd),
    "Slice": lambda torch, op, xs: xs[0][
        tuple(slice(int(a), int(b)) for a, b in zip(xs[1], xs[2]))
    ].clone(),
    "Softmax": _last("softmax"),
    "Split": lambda torch, op, xs: [
        p.clone() for p in xs[0].split(-(-xs[0].shape[op.axis] // op.num_outputs), op.axis)
    ],
    "Squeeze": lambda torch, op, xs: xs[0].squeeze().clone(),
    "Unsqueeze": lambda torch, op, xs: xs[0].unsqueeze(int(xs[1])).clone(),
    "ThresholdedRelu": lambda torch, op, xs: torch.nn.functional.threshold(xs[0], op.alpha, 0),
    "Tile": lambda torch, op, xs: xs[0].repeat([int(n) for n in xs[1]]),
    "TopK": lambda torch, op, xs: torch.topk(xs[0], int(xs[1]), op.axis),
    "Transpose": lambda torch, op, xs: xs[0].permute(2, 1, 0).contiguous(),
    "DepthToSpace": lambda torch, op, xs: torch.pixel_shuffle(xs[0], op.blocksize),
    "SpaceToDepth": lambda torch, op, xs: torch.pixel_unshuffle(xs[0], op.blocksize),
    "Pad": lambda torch, op, xs: torch.nn.functional.pad(
        xs[0], [int(n) for pair in zip(xs[1].flip(0)[4:], xs[1].flip(0)[:4]) for n in pair]
    ),
}


def twin(case: Case, wanted: Sequence[np.ndarray]) -> Callable[[], object] | None:
    """A call of PyTorch for the case, on one thread; None where it has no such function.

    wanted: Verax's outputs, which it must give, but for their shape and rounding.
    """
    torch = optional("torch", "to compare operators with")
    function = TWINS.get(case.op.kind)
    if function is None:
        return None
    torch.set_num_threads(1)
    # constants that say sizes are read before the time is taken, as compilers read them
    given = [*case.inputs]
    while given and given[-1] is None:
        given.pop()
    tensors = [None if a is None else torch.from_numpy(np.array(a)) for a in given]

    def call() -> Any:
        return function(torch, case.op, tensors)

    try:
        with torch.no_grad():
            found = call()
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None
    outputs = [found] if isinstance(found, torch.Tensor) else list(found)
    return call if all(map(_same, outputs, wanted)) else None


def without_gradients() -> AbstractContextManager[object]:
    """While times are taken: entering it for every call takes as long as a short one."""
    torch = optional("torch", "to compare operators with")
    found: AbstractContextManager[object] = torch.no_grad()
    return found


def _same(tensor: Any, array: np.ndarray) -> bool:
    """Whether they hold the same numbers: to rounding, in whatever shape."""
    one, other = tensor.numpy().astype(np.float64).ravel(), array.astype(np.float64).ravel()
    if one.shape != other.shape or not np.array_equal(np.isnan(one), np.isnan(other)):
        return False
    one, other = np.nan_to_num(one), np.nan_to_num(other)
    largest = np.abs(other).max(initial=0.0)
    return bool(np.abs(one - other).max(initial=0.0) <= CLOSE * max(largest, 1e-30))
