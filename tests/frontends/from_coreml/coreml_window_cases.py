"""Cases of CoreML layers with weights or windows, with their formulas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from coreml_models import Case, conv, deconv, pool, same, setting, weights

IMAGE = ((2, 6, 5, 7),)
PLAIN = ((2, 3, 5),)
ALL = (-3, -2, -1)


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
