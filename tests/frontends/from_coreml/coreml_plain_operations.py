"""Cases of ML program operations on single elements, of reductions and of plain moves."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from coreml_models import pool, weights
from coreml_operations import Case

PLAIN = (2, 3, 5)
IMAGE = (2, 6, 5, 7)
SMALL = np.random.default_rng(1).uniform(-0.9, 0.9, PLAIN).astype(np.float32)
WHOLE = np.random.default_rng(2).integers(-9, 10, PLAIN).astype(np.int32)
OTHER = np.random.default_rng(3).choice([-4, -3, 2, 3, 5], (3, 1)).astype(np.int32)
FLAGS = [np.random.default_rng(i).random(PLAIN) < 0.5 for i in (4, 5)]


def functions() -> Iterator[Case]:
    one = {"x": "%x0"}
    for kind, f in {
        "acos": np.arccos, "asin": np.arcsin, "atan": np.arctan, "atanh": np.arctanh,
        "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "erf": np.vectorize(math.erf),
        "exp2": np.exp2, "identity": lambda x: x, "sign": np.sign, "sinh": np.sinh, "tan": np.tan,
        "softsign": lambda x: x / (1 + np.abs(x)),
    }.items():  # fmt: skip
        yield Case(kind, (SMALL,), one, f)
    yield Case("logical_not", FLAGS[:1], one, np.logical_not, outputs=("bool",))
    yield Case("cast", (WHOLE,), {**one, "dtype": "fp32"}, lambda x: x)
    yield Case("cast", (SMALL,), {**one, "dtype": "bool"}, lambda x: x != 0, "bool", ("bool",))
    rounded = float(np.float32(1e-4))
    yield Case("inverse", (SMALL + 2,), one, lambda x: 1 / (x + rounded))
    yield Case("inverse", (SMALL + 2,), {**one, "epsilon": np.float32(0.5)},
               lambda x: 1 / (x + 0.5), "epsilon")  # fmt: skip
    numbers = {"alpha": np.float32(0.75), "beta": np.float32(1.25)}
    with_numbers = {**one, **numbers}
    yield Case("clamped_relu", (PLAIN,), with_numbers,
               lambda x: np.minimum(1.25, np.where(x >= 0, x, 0.75 * x)))  # fmt: skip
    yield Case("linear_activation", (PLAIN,), with_numbers, lambda x: 0.75 * x + 1.25)
    yield Case("scaled_tanh", (PLAIN,), with_numbers, lambda x: 0.75 * np.tanh(1.25 * x))
    yield Case("threshold", (PLAIN,), {**one, "alpha": np.float32(0.25)},
               lambda x: np.maximum(x, 0.25))  # fmt: skip
    alpha, beta = weights(6), weights(6, seed=6)
    a, b = (v.reshape(6, 1, 1).astype(float) for v in (alpha, beta))
    yield Case("prelu", (IMAGE,), {**one, "alpha": alpha}, lambda x: np.where(x >= 0, x, a * x))
    yield Case("softplus_parametric", (IMAGE,), {**one, "alpha": alpha, "beta": beta},
               lambda x: a * np.log1p(np.exp(b * x)))  # fmt: skip


def pairs() -> Iterator[Case]:
    two = {"x": "%x0", "y": "%x1"}
    for kind, f in {
        "equal": np.equal, "less": np.less, "less_equal": np.less_equal,
        "greater_equal": np.greater_equal,
    }.items():  # fmt: skip
        yield Case(kind, (WHOLE, OTHER), two, f, outputs=("bool",))
    for kind, f in {"logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
        yield Case(kind, FLAGS, two, f, outputs=("bool",))
    yield Case("minimum", (PLAIN, (3, 1)), two, np.minimum)
    for kind, f in {"mod": np.mod, "floor_div": np.floor_divide}.items():
        yield Case(kind, (SMALL, (3, 1)), two, f)
        yield Case(kind, (WHOLE, OTHER), two, f, "whole numbers", ("int32",))


def reductions() -> Iterator[Case]:
    form = {"x": "%x0", "axes": np.int32([0, -1]), "keep_dims": True}
    for kind, f in {
        "l1_norm": lambda x, **k: np.abs(x).sum(**k), "log_sum": lambda x, **k: np.log(x.sum(**k)),
        "min": np.min, "prod": np.prod, "sum_square": lambda x, **k: (x * x).sum(**k),
    }.items():  # fmt: skip
        x = SMALL + 1 if kind == "log_sum" else SMALL
        yield Case(f"reduce_{kind}", (x,), form, lambda x, f=f: f(x, axis=(0, 2), keepdims=True))
    yield Case("reduce_argmin", (SMALL,), {"x": "%x0", "axis": 1, "keep_dims": True},
               lambda x: x.argmin(1)[:, None], outputs=("int32",))  # fmt: skip
    epsilon = {"epsilon": np.float32(0.5)}
    yield Case("l2_norm", (IMAGE,), {"x": "%x0", **epsilon},
               lambda x: x / np.sqrt((x * x).sum((1, 2, 3), keepdims=True) + 0.5))  # fmt: skip

    def response(x):
        wide = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
        return x / (1.5 + 0.75 / 3 * sum(wide[:, i : i + 6] for i in range(3))) ** 0.5

    yield Case(
        "local_response_norm", (IMAGE,),
        {"x": "%x0", "size": 3, "alpha": np.float32(0.75), "beta": np.float32(0.5),
         "k": np.float32(1.5)}, response,
    )  # fmt: skip
    windows = {"kernel_sizes": np.int32([3, 2]), "strides": np.int32([2, 3])}
    amounts = {"pad_type": "custom", "pad": np.int32([1, 0, 0, 1]), "ceil_mode": False}
    yield Case(
        "l2_pool", (IMAGE,), {"x": "%x0", **windows, **amounts},
        lambda x: pool(x, lambda v: np.sqrt((v * v).sum()), (3, 2), (2, 3), ((1, 0), (0, 1))),
    )  # fmt: skip


def moves() -> Iterator[Case]:
    image = (2, 12, 4, 6)
    yield Case("crop", (IMAGE,), {"x": "%x0", "crop_height": np.int32([1, 2]),
                                  "crop_width": np.int32([0, 3])},
               lambda x: x[..., 1:-2, :-3])  # fmt: skip

    def wider(x, b):
        n, c, h, w = x.shape
        parts = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        return parts.reshape(n, c // b**2, h * b, w * b)

    def deeper(x, b):
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return parts.reshape(n, c * b * b, h // b, w // b)

    yield Case("depth_to_space", (image,), {"x": "%x0", "block_size": 2}, lambda x: wider(x, 2))
    yield Case("space_to_depth", (image,), {"x": "%x0", "block_size": 2}, lambda x: deeper(x, 2))
    yield Case("einsum", (PLAIN, (2, 4, 5)), {"values": ["%x0", "%x1"], "equation": "bij,bkj->bik"},
               lambda x, y: np.einsum("bij,bkj->bik", x, y))  # fmt: skip
    yield Case("fill", (), {"shape": np.int32([2, 3]), "value": np.float32(1.5)},
               lambda: np.full((2, 3), 1.5))  # fmt: skip
    yield Case("flatten2d", (IMAGE,), {"x": "%x0", "axis": -2}, lambda x: x.reshape(12, 35))
    steps = {"start": np.float32(1), "end": np.float32(6), "step": np.float32(0.75)}
    yield Case("range_1d", (), steps, lambda: np.arange(1, 6, 0.75))
    yield Case("resize_nearest_neighbor", (IMAGE,), {"x": "%x0", "target_size_height": 3,
                                                     "target_size_width": 10},
               lambda x: x[:, :, np.arange(3) * 5 // 3][..., np.arange(10) * 7 // 10])  # fmt: skip
    yield Case("shape", (PLAIN,), {"x": "%x0"}, lambda x: np.array(x.shape), outputs=("int32",))
    yield Case("slice_by_size", (PLAIN,), {"x": "%x0", "begin": np.int32([0, 1, 2]),
                                           "size": np.int32([2, 1, -1])},
               lambda x: x[:, 1:2, 2:])  # fmt: skip
    yield Case("stack", (PLAIN, PLAIN), {"values": ["%x0", "%x1"], "axis": -2},
               lambda x, y: np.stack([x, y], -2))  # fmt: skip


def plain_operations() -> list[Case]:
    return [*functions(), *pairs(), *reductions(), *moves()]
