"""Cases of CoreML layers on single elements and of those that move data."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from coreml_models import Case, linear, setting, weights

IMAGE = ((2, 6, 5, 7),)
PLAIN = ((2, 3, 5),)
ALL = (-3, -2, -1)


def elementwise() -> Iterator[Case]:
    alpha, beta = weights(6), weights(6, seed=6)
    a, b = alpha.reshape(-1, 1, 1).astype(float), beta.reshape(-1, 1, 1).astype(float)
    for name, fields, meaning in (
        ("linear", {"linear__alpha": 0.5, "linear__beta": 0.25}, lambda x: 0.5 * x + 0.25),
        ("ReLU", {"ReLU": None}, lambda x: np.maximum(0, x)),
        ("leakyReLU", {"leakyReLU__alpha": 0.25}, lambda x: np.where(x >= 0, x, 0.25 * x)),
        ("threshold", {"thresholdedReLU__alpha": 0.5}, lambda x: np.where(x >= 0.5, x, 0)),
        ("PReLU", {"PReLU__alpha": alpha}, lambda x: np.where(x >= 0, x, a * x)),
        ("PReLU 1", {"PReLU__alpha": alpha[:1]}, lambda x: np.where(x >= 0, x, a[0] * x)),
        ("tanh", {"tanh": None}, np.tanh),
        (
            "scaledTanh",
            {"scaledTanh__alpha": 1.5, "scaledTanh__beta": 0.5},
            lambda x: 1.5 * np.tanh(0.5 * x.astype(float)),
        ),
        ("sigmoid", {"sigmoid": None}, lambda x: 1 / (1 + np.exp(-x.astype(float)))),
        (
            "sigmoidHard",
            {"sigmoidHard__alpha": 0.5, "sigmoidHard__beta": 0.25},
            lambda x: np.clip(0.5 * x + 0.25, 0, 1),
        ),
        (
            "ELU",
            {"ELU__alpha": 0.5},
            lambda x: np.where(x >= 0, x, 0.5 * np.expm1(x.astype(float))),
        ),
        ("softsign", {"softsign": None}, lambda x: x / (1 + np.abs(x.astype(float)))),
        ("softplus", {"softplus": None}, lambda x: np.log1p(np.exp(x.astype(float)))),
        (
            "parametricSoftplus",
            {"parametricSoftplus__alpha": alpha, "parametricSoftplus__beta": beta},
            lambda x: a * np.log1p(np.exp(b * x)),
        ),
    ):
        yield Case("activation", IMAGE, setting(**fields), meaning, name)
    tables = {
        "ceil": np.ceil,
        "floor": np.floor,
        "sign": np.sign,
        "sin": np.sin,
        "cos": np.cos,
        "atan": np.arctan,
        "asinh": np.arcsinh,
        "copy": lambda x: x,
        "exp2": np.exp2,
        **{"round": np.round, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
        "erf": np.vectorize(math.erf),
    }
    for kind, function in tables.items():
        yield Case(kind, PLAIN, setting(), lambda x, f=function: f(x.astype(float)))
    inside, beyond = np.linspace(-0.9, 0.9, 7), np.linspace(1.1, 4, 7)
    for kind, function, values in (
        ("asin", np.arcsin, inside),
        ("acos", np.arccos, inside),
        ("atanh", np.arctanh, inside),
        ("acosh", np.arccosh, beyond),
    ):
        yield Case(kind, ((7,),), setting(), function, given={0: values})
    yield Case("clip", PLAIN, setting(minVal=-0.5, maxVal=1.25), lambda x: np.clip(x, -0.5, 1.25))
    yield Case(
        "clampedReLU",
        PLAIN,
        setting(alpha=0.5, beta=1.25),
        lambda x: np.minimum(1.25, np.where(x >= 0, x, 0.5 * x)),
    )
    yield Case(
        "gelu",
        PLAIN,
        setting(mode=1),
        lambda x: (
            0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(float) ** 3)))
        ),
        "tanh",
    )
    f32 = np.float32
    for i, (name, f) in enumerate(
        (
            ("SQRT", np.sqrt),
            ("RSQRT", lambda v: 1 / np.sqrt(v + 0.25)),
            ("INVERSE", lambda v: 1 / (v + 0.25)),
            ("POWER", lambda v: v**1.5),
            ("EXP", np.exp),
            ("LOG", np.log),
            ("ABS", np.abs),
            ("THRESHOLD", lambda v: np.maximum(1.5, v)),
        )
    ):
        yield Case(
            "unary",
            PLAIN,
            setting(type=i, alpha=1.5, epsilon=0.25, shift=3.0, scale=-0.5),
            lambda x, f=f: f(-0.5 * x.astype(float) + 3),
            name,
        )
    yield Case("unary", PLAIN, setting(type=2), lambda x: 1 / (x + float(f32(1e-6))), low=0.5)
    pair, mixed = ((2, 3, 4, 5),) * 2, ((2, 3, 4, 5), (2, 3, 1, 1), (2, 1, 4, 5))
    yield Case("add", pair[:1], setting(alpha=1.5), lambda x: x + 1.5)
    yield Case("add", mixed, setting(), lambda x, y, z: x.astype(float) + y + z)
    yield Case("multiply", pair[:1], setting(alpha=1.5), lambda x: x * 1.5)
    yield Case("multiply", mixed, setting(), lambda x, y, z: x.astype(float) * y * z)
    yield Case("average", pair, setting(), lambda x, y: (x.astype(float) + y) / 2)
    yield Case("max", pair, setting(), np.maximum)
    yield Case("min", pair, setting(), np.minimum)
    wide = ((2, 3, 5), (3, 1))
    for kind, function in (
        ("addBroadcastable", np.add),
        ("subtractBroadcastable", np.subtract),
        ("multiplyBroadcastable", np.multiply),
        ("maxBroadcastable", np.maximum),
        ("minBroadcastable", np.minimum),
        ("lessThan", np.less),
        ("lessEqual", np.less_equal),
        ("greaterThan", np.greater),
        ("greaterEqual", np.greater_equal),
        ("equal", np.equal),
        ("notEqual", np.not_equal),
    ):
        yield Case(kind, wide, setting(), lambda x, y, f=function: f(x.astype(float), y))
        if "Broadcastable" not in kind and "qual" not in kind:
            yield Case(kind, PLAIN, setting(alpha=0.5), lambda x, f=function: f(x, 0.5), "alpha")
    for kind, f in (("divideBroadcastable", np.divide), ("powBroadcastable", np.power)):
        yield Case(kind, wide, setting(), lambda x, y, f=f: f(x.astype(float), y), low=0.5)
    c, chw = weights(6), weights(6, 5, 7)
    yield Case(
        "scale",
        IMAGE,
        setting(shapeScale=(6,), scale=c, hasBias=True, shapeBias=(6, 5, 7), bias=chw),
        lambda x: x * c.reshape(-1, 1, 1).astype(float) + chw,
    )
    yield Case("scale", IMAGE, setting(shapeScale=(1,), scale=c[:1]), lambda x: x * float(c[0]))
    yield Case("bias", IMAGE, setting(shape=(6, 5, 7), bias=chw), lambda x: x.astype(float) + chw)
    yield Case(
        "dot",
        ((2, 3, 1, 1),) * 2,
        setting(),
        lambda x, y: (x.astype(float) * y).sum(-3, keepdims=True),
    )

    def softmax(x, axis):
        e = np.exp(x.astype(float))
        return e / e.sum(axis, keepdims=True)

    yield Case("softmax", IMAGE, setting(), lambda x: softmax(x, -3))
    yield Case("softmaxND", PLAIN, setting(axis=-1), lambda x: softmax(x, -1))
    reductions = {
        0: np.sum,
        1: np.mean,
        2: np.prod,
        3: lambda x, **k: np.sum(np.log(x + 0.25), **k),
        4: lambda x, **k: np.sum(x * x, **k),
        5: lambda x, **k: np.sum(np.abs(x), **k),
        6: lambda x, **k: np.sqrt(np.sum(x * x, **k)),
        7: np.max,
        8: np.min,
    }
    for i, f in reductions.items():
        axes = ((2, -3), (3, -2), (4, -1), (1, (-2, -1)), (0, ALL))[i % 5]
        yield Case(
            "reduce",
            ((2, 3, 4, 5),),
            setting(mode=i, axis=axes[0], epsilon=0.25),
            lambda x, f=f, at=axes[1]: f(x.astype(float), axis=at, keepdims=True),
            str(i),
            low=0.5,
        )
    yield Case("reduce", IMAGE, setting(mode=9, axis=2), lambda x: x.argmax(1)[:, None])
    for kind, f in (
        ("reduceL1", lambda x: np.abs(x).sum(1)),
        ("reduceL2", lambda x: np.sqrt((x * x).sum(1))),
        ("reduceProd", lambda x: x.prod(1)),
        ("reduceLogSum", lambda x: np.log(x.sum(1))),
        ("reduceSumSquare", lambda x: (x * x).sum(1)),
        ("reduceLogSumExp", lambda x: np.log(np.exp(x).sum(1))),
    ):
        yield Case(kind, PLAIN, setting(axes=(1,)), f, low=0.5)
    for kind, f in (("reduceSum", np.sum), ("reduceMean", np.mean), ("reduceMax", np.max)):
        yield Case(
            kind,
            ((2, 3, 4, 5),),
            setting(axes=(1, -1), keepDims=True),
            lambda x, f=f: f(x.astype(float), axis=(1, 3), keepdims=True),
        )
    yield Case("reduceMin", PLAIN, setting(reduceAll=True), np.min)
    yield Case("argMax", PLAIN, setting(axis=1, removeDim=True), lambda x: x.argmax(1))
    yield Case("argMin", PLAIN, setting(axis=-1), lambda x: x.argmin(-1)[..., None])
    yield Case(
        "whereBroadcastable",
        ((2, 3, 5),) * 3,
        setting(),
        lambda m, x, y: np.where(m != 0, x, y),
    )


def movement() -> Iterator[Case]:
    yield Case(
        "crop",
        IMAGE,
        setting(cropAmounts=((1, 2), (0, 3))),
        lambda x: x[:, :, 1:3, :4],
    )
    yield Case(
        "crop",
        ((2, 6, 5, 7), (2, 6, 3, 4)),
        setting(offset=(1, 2)),
        lambda x, y: x[:, :, 1:4, 2:6],
    )
    widths = ((0, 0), (0, 0), (1, 2), (0, 3))
    base = {"paddingAmounts": ((1, 2), (0, 3))}
    yield Case(
        "padding",
        IMAGE,
        setting(**base, constant__value=0.5),
        lambda x: np.pad(x, widths, constant_values=0.5),
    )
    for kind, mode in (("reflection", "reflect"), ("replication", "edge")):
        yield Case(
            "padding",
            IMAGE,
            setting(**base, **{kind: None}),
            lambda x, mode=mode: np.pad(x, widths, mode),
            kind,
        )
    yield Case(
        "upsample",
        IMAGE,
        setting(scalingFactor=(2, 3)),
        lambda x: x.repeat(2, 2).repeat(3, 3),
    )
    for mode, grid in (
        (0, lambda n, s: np.minimum(n - 1, np.arange(n * s) / s)),
        (1, lambda n, s: np.arange(n * s) * (n - 1) / (n * s - 1)),
        (2, lambda n, s: np.clip((np.arange(n * s) + 0.5) / s - 0.5, 0, n - 1)),
    ):
        yield Case(
            "upsample",
            IMAGE,
            setting(scalingFactor=(2, 3), mode=1, linearUpsampleMode=mode),
            lambda x, grid=grid: linear(x, [grid(5, 2), grid(7, 3)]),
            f"bilinear {mode}",
        )
    for method, last in ((0, 1.0), (2, None)):
        yield Case(
            "resizeBilinear",
            IMAGE,
            setting(targetSize=(8, 4), mode__samplingMethod=method, mode=None),
            lambda x, last=last: linear(
                x,
                [
                    np.minimum(n - 1, np.linspace(0, n - 1 if last else n - n / m, m))
                    for n, m in ((5, 8), (7, 4))
                ],
            ),
            str(method),
        )
    c = weights(3, 4, 5)
    yield Case("loadConstantND", (), setting(shape=(3, 4, 5), data=c), lambda: c)
    yield Case("loadConstant", (), setting(shape=(3, 4, 5), data=c), lambda: c[None, None])
    yield Case(
        "fillStatic", (), setting(value=1.5, targetShape=(2, 3)), lambda: np.full((2, 3), 1.5)
    )
    yield Case("flatten", IMAGE, setting(), lambda x: x.reshape(2, -1, 1, 1))
    yield Case(
        "flatten",
        IMAGE,
        setting(mode=1),
        lambda x: x.transpose(0, 2, 3, 1).reshape(2, -1, 1, 1),
        "last",
    )
    yield Case("reshape", IMAGE, setting(targetShape=(7, 6, 5)), lambda x: x.reshape(2, 7, 6, 5))
    yield Case(
        "reshape",
        IMAGE,
        setting(targetShape=(1, 7, 6, 5), mode=1),
        lambda x: x.transpose(0, 2, 3, 1).reshape(2, 6, 5, 7).transpose(0, 3, 1, 2),
        "last",
    )
    yield Case("permute", IMAGE, setting(axis=(0, 3, 1, 2)), lambda x: x.transpose(0, 3, 1, 2))
    yield Case(
        "concat",
        ((2, 3, 4, 5), (2, 6, 4, 5)),
        setting(),
        lambda x, y: np.concatenate([x, y], 1),
    )
    yield Case(
        "concatND",
        ((2, 3, 4), (2, 3, 5)),
        setting(axis=-1),
        lambda x, y: np.concatenate([x, y], 2),
    )
    yield Case("split", IMAGE, setting(nOutputs=3), lambda x: np.split(x, 3, 1), outputs=3)
    yield Case(
        "splitND",
        IMAGE,
        setting(axis=3, splitSizes=(2, 5)),
        lambda x: (x[..., :2], x[..., 2:]),
        outputs=2,
    )

    def depth_to_space(x, b):
        n, c, h, w = x.shape
        parts = x.reshape(n, b, b, c // b**2, h, w)
        return parts.transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)

    def shuffle(x, b):
        n, c, h, w = x.shape
        parts = x.reshape(n, c // b**2, b, b, h, w)
        return parts.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)

    deep = ((2, 12, 3, 5),)
    yield Case("reorganizeData", deep, setting(mode=1, blockSize=2), lambda x: depth_to_space(x, 2))
    yield Case("reorganizeData", deep, setting(mode=2, blockSize=2), lambda x: shuffle(x, 2))

    def space_to_depth(x, b):
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // b, b, w // b, b)
        return parts.transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)

    yield Case(
        "reorganizeData",
        ((2, 3, 4, 6),),
        setting(mode=0, blockSize=2),
        lambda x: space_to_depth(x, 2),
        "space to depth",
    )
    yield Case(
        "slice",
        IMAGE,
        setting(startIndex=1, endIndex=-1, stride=2, axis=2),
        lambda x: x[..., 1:-1:2],
    )
    yield Case(
        "sliceStatic",
        IMAGE,
        setting(beginIds=(0, 4, 1, 2), endIds=(0, 0, 0, 6), strides=(1, -2, 1, 1),
                beginMasks=(True, False, False, False), endMasks=(True, False, False, False),
                squeezeMasks=(False, False, True, False)),
        lambda x: x[:, 4:0:-2, 1, 2:6],
    )  # fmt: skip
    yield Case("transpose", PLAIN, setting(axes=(2, 0, 1)), lambda x: x.transpose(2, 0, 1))
    yield Case("squeeze", ((2, 1, 5, 1),), setting(axes=(1,)), lambda x: x[:, 0])
    yield Case("squeeze", ((2, 1, 5, 1),), setting(squeezeAll=True), np.squeeze)
    yield Case("expandDims", PLAIN, setting(axes=(0, -1)), lambda x: x[None, ..., None])
    yield Case("flattenTo2D", IMAGE, setting(axis=-2), lambda x: x.reshape(12, 35))
    yield Case("reshapeStatic", PLAIN, setting(targetShape=(5, -1)), lambda x: x.reshape(5, 6))
    yield Case(
        "rankPreservingReshape",
        PLAIN,
        setting(targetShape=(0, 5, -1)),
        lambda x: x.reshape(2, 5, 3),
    )
    yield Case(
        "broadcastToStatic",
        ((3, 1),),
        setting(targetShape=(2, 3, 5)),
        lambda x: np.broadcast_to(x, (2, 3, 5)),
    )
    yield Case("tile", PLAIN, setting(reps=(1, 2, 3)), lambda x: np.tile(x, (1, 2, 3)))
    yield Case("stack", ((2, 3, 5),) * 2, setting(axis=-2), lambda x, y: np.stack([x, y], -2))
    yield Case(
        "gather",
        ((7, 3), (2, 5)),
        setting(axis=0),
        lambda x, i: x[np.trunc(i).astype(int)],
        low=0.0,
    )
