"""One case or more for every CoreML layer that is supported."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from coreml_models import Case, conv, deconv, linear, pool, same, setting, weights

IMAGE = ((2, 6, 5, 7),)
PLAIN = ((2, 3, 5),)
ALL = (-3, -2, -1)


def cases() -> Iterator[Case]:
    yield from windows()
    yield from dense()
    yield from elementwise()
    yield from movement()


def windows() -> Iterator[Case]:
    w, b = weights(4, 6, 3, 2), weights(4, seed=6)
    base = {"outputChannels": 4, "kernelChannels": 6, "kernelSize": (3, 2), "weights": w}
    base |= {"stride": (2, 3)}
    for label, heavy in (("BOTTOM_RIGHT_HEAVY", False), ("TOP_LEFT_HEAVY", True)):
        pads = [same(n, k, s, top_heavy=heavy) for n, k, s in zip((5, 7), (3, 2), (2, 3))]
        yield Case(
            "convolution",
            IMAGE,
            setting(**base, same__asymmetryMode=int(heavy), same=None),
            lambda x, pads=pads: conv(x, w, 0, (2, 3), pads),
            label,
        )
        pads = [same(n, k, s, top_heavy=heavy) for n, k, s in zip((5, 7), (5, 4), (2, 3))]
        yield Case(
            "pooling",
            IMAGE,
            setting(type=1, kernelSize=(5, 4), stride=(2, 3), same__asymmetryMode=int(heavy),
                    same=None, avgPoolExcludePadding=True),
            lambda x, pads=pads: pool(x, np.mean, (5, 4), (2, 3), pads),
            label,
        )  # fmt: skip
        crop = [same(10, 5, 2, top_heavy=heavy)[0], same(21, 4, 3, top_heavy=heavy)[0]]
        turned = weights(6, 4, 5, 4)
        yield Case(
            "convolution",
            IMAGE,
            setting(isDeconvolution=True, outputChannels=4, kernelChannels=6, kernelSize=(5, 4),
                    stride=(2, 3), weights=turned, same__asymmetryMode=int(heavy), same=None),
            lambda x, crop=crop, w=turned: deconv(x, w, 0, (2, 3), (10, 21), crop),
            f"deconvolution, {label}",
        )  # fmt: skip
    amounts = ((1, 2), (0, 3))
    yield Case(
        "convolution",
        IMAGE,
        setting(**base, hasBias=True, bias=b, dilationFactor=(2, 1), valid__paddingAmounts=amounts),
        lambda x: conv(x, w, b, (2, 3), amounts, (2, 1)),
        "valid",
    )
    grouped = weights(4, 3, 3, 3)
    yield Case(
        "convolution",
        IMAGE,
        setting(outputChannels=4, kernelChannels=3, nGroups=2, weights=grouped),
        lambda x: conv(x, grouped, groups=2),
        "defaults, groups",
    )
    up = weights(6, 2, 3, 4)
    form = {"isDeconvolution": True, "outputChannels": 4, "kernelChannels": 6, "nGroups": 2}
    form |= {"kernelSize": (3, 4), "stride": (2, 3), "weights": up, "hasBias": True, "bias": b}
    yield Case(
        "convolution",
        IMAGE,
        setting(**form, valid__paddingAmounts=((1, 0), (2, 1)), dilationFactor=(1, 1)),
        lambda x: deconv(x, up, b, (2, 3), (10, 19), (1, 2), 2),
        "deconvolution, valid",
    )
    yield Case(
        "convolution",
        IMAGE,
        setting(**form, outputShape=(10, 20)),
        lambda x: deconv(x, up, b, (2, 3), (10, 20), (0, 1), 2),
        "deconvolution, output shape",
    )
    small = weights(6, 4, 1, 2)
    yield Case(
        "convolution",
        IMAGE,
        setting(isDeconvolution=True, outputChannels=4, kernelChannels=6, kernelSize=(1, 2),
                stride=(2, 3), weights=small, same=None),
        lambda x: deconv(x, small, 0, (2, 3), (10, 21), (0, 0)),
        "deconvolution, kernel below stride",
    )  # fmt: skip
    pooled = {"kernelSize": (3, 2), "stride": (2, 2)}
    amounts = ((1, 1), (0, 1))
    yield Case(
        "pooling",
        IMAGE,
        setting(type=0, **pooled, valid__paddingAmounts=amounts),
        lambda x: pool(x, np.max, (3, 2), (2, 2), amounts),
        "max",
    )
    yield Case(
        "pooling",
        IMAGE,
        setting(type=1, **pooled, valid__paddingAmounts=amounts),
        lambda x: pool(x, lambda v: v.sum() / 6, (3, 2), (2, 2), amounts),
        "average with padding",
    )
    yield Case(
        "pooling",
        IMAGE,
        setting(type=2, **pooled, valid=None),
        lambda x: pool(x, lambda v: np.sqrt((v**2).sum()), (3, 2), (2, 2), ((0, 0), (0, 0))),
        "L2",
    )
    # int_division_round_up(5 + 2 - 3, 2) + 1 = 3; (7 + 2 - 2) / 2 -> 4 + 1 = 5, 8 >= 8 drops one.
    yield Case(
        "pooling",
        IMAGE,
        setting(type=0, **pooled, includeLastPixel__paddingAmounts=(1, 1)),
        lambda x: pool(x, np.max, (3, 2), (2, 2), ((1, 1), (1, 1)), (3, 4)),
        "last pixel, padded",
    )
    yield Case(
        "pooling",
        ((2, 3, 6, 8),),
        setting(type=1, kernelSize=(3, 3), stride=(2, 2), includeLastPixel=None,
                avgPoolExcludePadding=True),
        lambda x: pool(x, np.mean, (3, 3), (2, 2), ((0, 0), (0, 0)), (3, 4)),
        "last pixel",
    )  # fmt: skip
    for i, (name, join) in enumerate(
        (("max", np.max), ("mean", np.mean), ("L2", lambda v, **k: np.sqrt(np.sum(v * v, **k))))
    ):
        yield Case(
            "pooling",
            IMAGE,
            setting(type=i, globalPooling=True, valid=None),
            lambda x, join=join: join(x.astype(np.float64), axis=(2, 3), keepdims=True),
            f"global {name}",
        )


def dense() -> Iterator[Case]:
    w, b = weights(4, 5), weights(4, seed=6)
    base = {"inputChannels": 5, "outputChannels": 4, "weights": w, "hasBias": True, "bias": b}
    for shape in ((5,), (2, 5), (2, 3, 5)):
        yield Case("innerProduct", (shape,), setting(**base), lambda x: x @ w.T.astype(float) + b)
    wide = weights(4, 30)
    yield Case(
        "innerProduct",
        ((2, 5, 3, 2),),
        setting(inputChannels=30, outputChannels=4, weights=wide),
        lambda x: (x.reshape(2, 30) @ wide.T.astype(float))[..., None, None],
        "rank 4",
    )
    mean, gamma, beta = (weights(6, seed=i) for i in (1, 2, 3))
    var = np.abs(weights(6, seed=4)) + np.float32(0.1)

    def normal(x, m, v, eps):
        along = (-1, 1, 1)
        m, v = (np.reshape(a, along) if np.size(a) == 6 else a for a in (m, v))
        scaled = gamma.reshape(along) * (x.astype(float) - m) / np.sqrt(v + np.float64(eps))
        return scaled + beta.reshape(along)

    given = {"channels": 6, "gamma": gamma, "beta": beta, "mean": mean, "variance": var}
    for shape in ((2, 6, 3, 4), (6, 3, 4)):
        yield Case(
            "batchnorm",
            (shape,),
            setting(**given, epsilon=0.25),
            lambda x: normal(x, mean, var, 0.25),
        )
    yield Case(
        "batchnorm",
        IMAGE,
        setting(
            channels=6, gamma=gamma, beta=beta, computeMeanVar=True, instanceNormalization=True
        ),
        lambda x: normal(
            x,
            x.astype(float).mean((2, 3), keepdims=True),
            x.astype(float).var((2, 3), keepdims=True),
            np.float32(1e-5),
        ),
        "instance",
    )
    for across, axes in ((False, (2, 3)), (True, (1, 2, 3))):
        yield Case(
            "mvn",
            IMAGE,
            setting(acrossChannels=across, normalizeVariance=True, epsilon=0.5),
            lambda x, axes=axes: (
                (x - x.mean(axes, dtype=float, keepdims=True))
                / np.sqrt(x.astype(float).var(axes, keepdims=True) + 0.5)
            ),
        )
    yield Case("mvn", IMAGE, setting(), lambda x: x - x.mean((2, 3), dtype=float, keepdims=True))
    yield Case(
        "l2normalize",
        IMAGE,
        setting(epsilon=0.5),
        lambda x: x / np.sqrt((x.astype(float) ** 2).sum(ALL, keepdims=True) + 0.5),
    )

    def lrn(x):
        squares = np.pad(x.astype(float) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
        near = sum(squares[:, i : i + 6] for i in range(3))
        return x / (1.5 + 0.5 / 3 * near) ** 0.75

    yield Case("lrn", IMAGE, setting(alpha=0.5, beta=0.75, localSize=3, k=1.5), lrn)
    g, h = weights(3, 5), weights(3, 5, seed=6)
    yield Case(
        "layerNormalization",
        PLAIN,
        setting(normalizedShape=(3, 5), eps=0.25, gamma=g, beta=h),
        lambda x: (
            (x - x.mean((1, 2), dtype=float, keepdims=True))
            / np.sqrt(x.astype(float).var((1, 2), keepdims=True) + 0.25)
            * g
            + h
        ),
    )
    yield Case(
        "batchedMatmul",
        ((2, 3, 4), (2, 5, 4)),
        setting(transposeB=True),
        lambda x, y: x.astype(float) @ y.transpose(0, 2, 1),
    )
    yield Case(
        "batchedMatmul",
        ((2, 4, 3), (2, 4, 5)),
        setting(transposeA=True),
        lambda x, y: x.transpose(0, 2, 1).astype(float) @ y,
    )
    yield Case(
        "batchedMatmul",
        PLAIN,
        setting(weightMatrixFirstDimension=5, weightMatrixSecondDimension=4, weights=w,
                hasBias=True, bias=b),
        lambda x: x @ w.T.astype(float) + b,
    )  # fmt: skip


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
    }
    for kind, function in tables.items():
        yield Case(kind, PLAIN, setting(), lambda x, f=function: f(x.astype(float)))
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
