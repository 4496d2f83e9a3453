"""Cases of CoreML layers that pick, place and rank by position, of those whose result has a shape
that is computed, and of those on volumes, with their formulas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from coreml_detector import pick_top
from coreml_models import Case, setting, weights

PLAIN = ((2, 3, 5),)
VOLUME = ((2, 6, 5, 7, 4),)


def indexing() -> Iterator[Case]:
    nd = np.array([[[1, 2], [0, 1]], [[0, 0], [1, 0]], [[1, 1], [0, 2]]])
    yield Case(
        "gatherND", (*PLAIN, nd.shape), setting(),
        lambda x, i: x[i[..., 0].astype(int), i[..., 1].astype(int)], given={1: nd},
    )  # fmt: skip
    along = np.random.default_rng(2).integers(-3, 3, (2, 4, 5))
    yield Case(
        "gatherAlongAxis", (*PLAIN, along.shape), setting(axis=-2),
        lambda x, i: np.take_along_axis(x, i.astype(int), 1), given={1: along},
    )  # fmt: skip
    apart = np.stack([np.random.default_rng(i).permutation(3)[:2] for i in range(10)], 1)
    apart = apart.reshape(2, 2, 5).transpose(1, 0, 2)
    joins = {0: lambda o, u: u, 1: np.add, 2: np.subtract, 3: np.multiply, 5: np.maximum,
             6: np.minimum}  # fmt: skip
    for mode, join in joins.items():
        yield Case(
            "scatterAlongAxis", (*PLAIN, apart.shape, apart.shape), setting(axis=1, mode=mode),
            lambda x, i, u, f=join: _along(x, i.astype(int), u, f), str(mode), given={1: apart},
        )  # fmt: skip
        few = np.array([[2, 0], [1, 2]])
        yield Case(
            "scatterND", ((3, 4, 5), (2, 2), (2, 5)), setting(mode=mode),
            lambda x, i, u, f=join: _placed(x, [tuple(v) for v in i.astype(int)], u, f),
            str(mode), given={1: few},
        )  # fmt: skip
        at = np.array([[3, 0], [1, 3], [0, 2]]) if mode in (1, 2) else np.array([[3, 0], [1, 2]])
        yield Case(
            "scatter", ((2, 4, 5), at.shape, (2, *at.shape, 5)), setting(axis=-2, mode=mode),
            lambda x, i, u, f=join: _slices(x, i.astype(int), u, f), str(mode), given={1: at},
        )  # fmt: skip
    for bottom in (False, True):

        def ranked(x, b=bottom):
            order = np.argsort(x if b else -x, axis=1, kind="stable")[:, :2]
            return np.take_along_axis(x, order, 1), order

        yield Case("topK", PLAIN, setting(axis=-2, K=2, useBottomK=bottom), ranked, str(bottom),
                   outputs=2)  # fmt: skip
        yield Case(
            "argSort", PLAIN, setting(axis=1, descending=bottom),
            lambda x, b=bottom: np.argsort(-x if b else x, axis=1), str(bottom),
        )  # fmt: skip
    codes = np.array([[0, 3, -1], [4, 2, 1]])
    yield Case(
        "oneHot", (codes.shape,), setting(oneHotVectorSize=4, axis=1, onValue=2.0, offValue=-0.5),
        lambda x: np.where(x[:, None] == np.arange(4).reshape(1, -1, 1), 2.0, -0.5),
        given={0: codes},
    )  # fmt: skip
    yield Case("cumSum", PLAIN, setting(axis=-2), lambda x: np.cumsum(x, 1))

    def earlier(x):
        total = np.cumsum(x[:, :, ::-1], 2)[:, :, ::-1]
        return total - x

    yield Case("cumSum", PLAIN, setting(axis=2, excludeFinalSum=True, reverse=True), earlier, "all")
    sparse = np.where(np.random.default_rng(4).random((3, 4)) < 0.4, 0, 1.5)
    yield Case("whereNonZero", ((3, 4),), setting(), lambda x: np.argwhere(x), given={0: sparse})
    yield Case(
        "reverse", PLAIN, setting(reverseDim=(True, False, True)), lambda x: x[::-1, :, ::-1]
    )
    yield Case(
        "reverseSeq", ((3, 5, 2), (3,)), setting(batchAxis=0, sequenceAxis=1),
        lambda x, n: np.stack([np.concatenate([r[: int(m)][::-1], r[int(m) :]])
                               for r, m in zip(x, n)]),
        given={1: (4, 0, 5)},
    )  # fmt: skip
    yield Case(
        "slidingWindows", ((2, 8, 3),), setting(axis=-2, windowSize=3, step=2),
        lambda x: np.stack([x[:, i : i + 3] for i in (0, 2, 4)], 1),
    )  # fmt: skip
    yield Case(
        "sliceBySize", ((2, 7, 3), (1,)), setting(axis=1, size=4), lambda x, b: x[:, 2:6],
        given={1: (2,)},
    )  # fmt: skip
    table, b = weights(5, 7), weights(5, seed=6)
    words = np.array([3, 0, 6, 3])
    fields = {"weights": table, "hasBias": True, "bias": b}
    yield Case(
        "embedding", ((4, 1, 1, 1),), setting(inputDim=7, outputChannels=5, **fields),
        lambda x: (table.T[words] + b.astype(float))[..., None, None],
        given={0: words.reshape(4, 1, 1, 1)},
    )  # fmt: skip
    yield Case(
        "embeddingND", ((2, 2, 1),), setting(vocabSize=7, embeddingSize=5, **fields),
        lambda x: (table.T[words] + b.astype(float)).reshape(2, 2, 5),
        given={0: words.reshape(2, 2, 1)},
    )  # fmt: skip
    yield Case(
        "embeddingND", ((2, 2, 1),), setting(vocabSize=7, embeddingSize=5, weights=table),
        lambda x: table.T[words].reshape(2, 2, 5), "no bias", given={0: words.reshape(2, 2, 1)},
    )  # fmt: skip
    yield from suppressions()


def _along(x, i, u, join):
    y = x.copy()
    for n, j, k in np.ndindex(*i.shape):
        y[n, i[n, j, k], k] = join(y[n, i[n, j, k], k], u[n, j, k])
    return y


def _placed(x, places, u, join):
    y = x.copy()
    for place, values in zip(places, u):
        y[place] = join(y[place], values)
    return y


def _slices(x, i, u, join):
    y = x.copy()
    for place in np.ndindex(*i.shape):
        y[:, i[place]] = join(y[:, i[place]], u[:, place[0], place[1]])
    return y


def suppressions() -> Iterator[Case]:
    rng = np.random.default_rng(8)
    boxes = np.concatenate([rng.uniform(0, 3, (2, 12, 2)), rng.uniform(1, 2, (2, 12, 2))], 2)
    boxes, scores = (v.astype(np.float32) for v in (boxes, rng.random((2, 12, 3))))

    def meaning(b, s, rows, overlap, least, per_class):
        outputs = [np.zeros((2, rows, 4)), np.zeros((2, rows, 3)), np.full((2, rows), -1.0)]
        count = np.zeros(2)
        for n in range(2):
            kept = pick_top(s[n], b[n], overlap, least, per_class=per_class)[:rows]
            kept = kept or [int(s[n].max(1).argmax())]
            count[n] = len(kept)
            for output, values in zip(outputs, (b[n], s[n], np.arange(12))):
                output[n, : len(kept)] = values[kept]
        return [*outputs, count]

    for label, rows, overlap, least, per_class in (
        ("of all", 5, 0.25, 0.3, False),
        ("per class", 15, 0.25, 0.5, True),
        ("nothing passes", 4, 0.25, 2.0, False),
    ):
        yield Case(
            "NonMaximumSuppression", (boxes.shape, scores.shape),
            setting(iouThreshold=overlap, scoreThreshold=least, maxBoxes=rows,
                    perClassSuppression=per_class),
            lambda b, s, r=rows, o=overlap, t=least, p=per_class: meaning(b, s, r, o, t, p),
            label, outputs=4, given={0: boxes, 1: scores},
        )  # fmt: skip
    yield Case(
        "NonMaximumSuppression", (boxes.shape, scores.shape, (1,), (1,)),
        setting(iouThreshold=0.9, scoreThreshold=0.9, maxBoxes=6),
        lambda b, s, o, t: meaning(b, s, 6, 0.125, 0.25, False), "thresholds are inputs",
        outputs=4, given={0: boxes, 1: scores, 2: (0.125,), 3: (0.25,)},
    )  # fmt: skip


def shapes() -> Iterator[Case]:
    yield Case("getShape", PLAIN, setting(), lambda x: np.array(x.shape))
    yield Case("reshapeLike", ((2, 3, 5), (5, 6)), setting(), lambda x, y: x.reshape(5, 6))
    yield Case(
        "broadcastToLike", ((3, 1), (2, 3, 5)), setting(),
        lambda x, y: np.broadcast_to(x, y.shape),
    )  # fmt: skip
    yield Case("fillLike", PLAIN, setting(value=1.5), lambda x: np.full(x.shape, 1.5))
    yield Case(
        "rangeStatic", (), setting(startValue=1.0, endValue=6.0, stepSizeValue=0.75),
        lambda: np.arange(1.0, 6.0, 0.75),
    )  # fmt: skip
    yield Case(
        "rangeDynamic", ((1,), (1,)), setting(stepSizeValue=1.5),
        lambda e, s: np.arange(1.0, 6.0, 1.5), given={0: (6,), 1: (1,)},
    )  # fmt: skip
    yield Case(
        "rangeDynamic", ((1,),), setting(startValue=1.0, stepSizeValue=1.5),
        lambda e: np.arange(1.0, 6.0, 1.5), "one input", given={0: (6,)},
    )  # fmt: skip
    yield Case(
        "constantPad", ((3, 4),), setting(value=0.5, padAmounts=(1, 0, 2, 3)),
        lambda x: np.pad(x, ((1, 0), (2, 3)), constant_values=0.5),
    )  # fmt: skip
    yield Case(
        "constantPad", ((3, 4),),
        setting(value=0.5, padAmounts=(0, 5, 6, 0), padToGivenOutputSizeMode=True),
        lambda x: np.pad(x, ((0, 2), (2, 0)), constant_values=0.5), "to sizes",
    )  # fmt: skip
    matrix = ((2, 4, 5),)
    yield Case("lowerTriangular", matrix, setting(k=1), lambda x: np.tril(x, 1))
    yield Case("upperTriangular", matrix, setting(k=-1), lambda x: np.triu(x, -1))
    for lower, upper in ((1, 2), (-1, 1), (0, -1)):
        yield Case(
            "matrixBandPart", matrix, setting(numLower=lower, numUpper=upper),
            lambda x, a=lower, b=upper: np.triu(np.tril(x, b if b >= 0 else 9),
                                               -a if a >= 0 else -9),
            f"{lower} {upper}",
        )  # fmt: skip
    yield Case(
        "sequenceRepeat", VOLUME, setting(nRepetitions=3), lambda x: np.tile(x, (3, 1, 1, 1, 1))
    )
    yield Case(
        "concatND", ((2, 3, 4),) * 2, setting(axis=-2, interleave=True),
        lambda x, y: np.stack([x, y], 2).reshape(2, 6, 4), "interleave",
    )  # fmt: skip
    yield Case(
        "concat", ((2, 2, 3, 4, 5), (3, 2, 3, 4, 5)), setting(sequenceConcat=True),
        lambda x, y: np.concatenate([x, y]), "sequence",
    )  # fmt: skip
    yield Case(
        "dot", ((2, 3, 1, 1),) * 2, setting(cosineSimilarity=True),
        lambda x, y: (x * y).sum(1, keepdims=True)
        / np.sqrt((x * x).sum(1, keepdims=True) * (y * y).sum(1, keepdims=True)), "cosine",
    )  # fmt: skip
    flags = [np.where(np.random.default_rng(i).random((3, 4)) < 0.5, 0.0, i + 1.0) for i in (0, 1)]
    for name, f in (("Or", np.logical_or), ("And", np.logical_and), ("Xor", np.logical_xor)):
        yield Case(f"logical{name}", ((3, 4),) * 2, setting(), f, given=dict(enumerate(flags)))
    yield Case("logicalNot", ((3, 4),), setting(), np.logical_not, given={0: flags[0]})
    pair = ((2, 3, 5), (3, 1))
    yield Case("floorDivBroadcastable", pair, setting(), lambda x, y: np.floor(x / y))
    yield Case("modBroadcastable", pair, setting(), lambda x, y: np.mod(x, y))


def volumes() -> Iterator[Case]:
    w, b = weights(4, 3, 3, 2, 1), weights(4, seed=6)
    base = {"outputChannels": 4, "inputChannels": 6, "nGroups": 2, "weights": w, "hasBias": True,
            "bias": b, **_three("kernel", 3, 2, 1)}  # fmt: skip
    custom = dict(zip(("Front", "Back", "Top", "Bottom", "Left", "Right"), (1, 0, 2, 1, 0, 3)))
    custom = {f"customPadding{k}": v for k, v in custom.items()}
    pads = ((1, 0), (2, 1), (0, 3))
    yield Case(
        "convolution3d", VOLUME,
        setting(**base, **_three("stride", 2, 1, 3), **_three("dilation", 1, 2, 1), **custom),
        lambda x: conv3(x, w, b, (2, 1, 3), pads, (1, 2, 1), 2), "custom",
    )  # fmt: skip
    for label, kind in (("valid", 1), ("same", 2)):
        found = tuple(_same(n, k, s) for n, k, s in zip((5, 7, 4), (3, 2, 1), (2, 3, 1)))
        found = found if kind == 2 else ((0, 0),) * 3
        yield Case(
            "convolution3d", VOLUME,
            setting(**base, **_three("stride", 2, 3, 1), **_three("dilation", 1, 1, 1),
                    paddingType=kind, customPaddingTop=7),
            lambda x, p=found: conv3(x, w, b, (2, 3, 1), p, (1, 1, 1), 2),
            label,
        )  # fmt: skip
    turned = weights(2, 6, 3, 2, 1)
    fields = base | {"weights": turned} | _three("stride", 2, 1, 3) | _three("dilation", 1, 1, 1)

    def scattered(x, size, cut):
        full = np.zeros((2, 4, 11, 8, 10))
        for n, i, d, h, q in np.ndindex(*x.shape):
            group = i // 3
            for o, j, k, m in np.ndindex(2, 3, 2, 1):
                full[n, group * 2 + o, d * 2 + j, h + k, q * 3 + m] += (
                    float(turned[o, i, j, k, m]) * x[n, i, d, h, q]
                )
        window = tuple(slice(b, b + n) for b, n in zip(cut, size))
        return full[:, :, *window] + b.astype(float).reshape(-1, 1, 1, 1)

    yield Case(
        "convolution3d", VOLUME,
        setting(**fields, isDeconvolution=True, paddingType=1, outputShape=(11, 8, 10)),
        lambda x: scattered(x, (11, 8, 10), (0, 0, 0)), "deconvolution",
    )  # fmt: skip
    yield Case(
        "convolution3d", VOLUME,
        setting(**fields, isDeconvolution=True, customPaddingFront=1, customPaddingBottom=2,
                customPaddingRight=3),
        lambda x: scattered(x, (10, 6, 7), (1, 0, 0)), "deconvolution, custom",
    )  # fmt: skip
    yield Case(
        "convolution3d", VOLUME, setting(**fields, isDeconvolution=True, paddingType=2),
        lambda x: np.concatenate(
            [scattered(x, (10, 7, 10), (0, 0, 0)), np.broadcast_to(
                b.astype(float).reshape(4, 1, 1, 1), (2, 4, 10, 7, 2))], 4),
        "deconvolution, same",
    )  # fmt: skip
    form = _three("kernel", 3, 2, 2) | _three("stride", 2, 1, 2)
    sames = tuple(_same(n, k, s) for n, k, s in zip((5, 7, 4), (3, 2, 2), (2, 1, 2)))
    wide = ((1, 0), (1, 1), (0, 1))
    small = {"customPaddingFront": 1, "customPaddingTop": 1, "customPaddingBottom": 1,
             "customPaddingRight": 1}  # fmt: skip
    yield Case(
        "pooling3d", VOLUME, setting(**form, **small),
        lambda x: pool3(x, (3, 2, 2), (2, 1, 2), wide, np.max), "max",
    )  # fmt: skip
    for excluded in (False, True):
        yield Case(
            "pooling3d", VOLUME, setting(**form, **small, type=1, countExcludePadding=excluded),
            lambda x, e=excluded: pool3(
                x, (3, 2, 2), (2, 1, 2), wide, np.mean if e else lambda v: v.sum() / 12),
            f"average {excluded}",
        )  # fmt: skip
    yield Case(
        "pooling3d", VOLUME, setting(**form, type=1, countExcludePadding=True, paddingType=2),
        lambda x: pool3(x, (3, 2, 2), (2, 1, 2), sames, np.mean), "same",
    )  # fmt: skip
    yield Case("globalPooling3d", VOLUME, setting(), lambda x: x.max((2, 3, 4), keepdims=True))
    yield Case(
        "globalPooling3d", VOLUME, setting(type=1), lambda x: x.mean((2, 3, 4), keepdims=True),
        "average",
    )  # fmt: skip


def _three(prefix: str, *sizes: int) -> dict[str, int]:
    return {f"{prefix}{n}": v for n, v in zip(("Depth", "Height", "Width"), sizes)}


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def conv3(x, w, b, strides, pads, dilations, groups):
    """Convolution of volumes, tap by tap."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations)
    ]
    y = np.zeros((x.shape[0], len(w), *size))
    ins, outs = w.shape[1], len(w) // groups
    for g, *taps in itertools.product(range(groups), *map(range, w.shape[2:])):
        window = tuple(
            slice(p * d, p * d + (o - 1) * s + 1, s)
            for p, d, o, s in zip(taps, dilations, size, strides)
        )
        part = w[g * outs : (g + 1) * outs, :, *taps].astype(float)
        y[:, g * outs : (g + 1) * outs] += np.einsum(
            "ncdhw,oc->nodhw", x[:, g * ins : (g + 1) * ins, *window], part
        )
    return y + b.astype(float).reshape(-1, 1, 1, 1)


def pool3(x, kernel, strides, pads, join):
    """`join` over the elements that lie inside the volume, window by window."""
    size = [(n + sum(p) - k) // s + 1 for n, k, s, p in zip(x.shape[2:], kernel, strides, pads)]
    y = np.zeros((*x.shape[:2], *size))
    for n, c, *at in np.ndindex(*y.shape):
        window = tuple(
            slice(max(0, i * s - p[0]), min(m, i * s - p[0] + k))
            for i, m, k, s, p in zip(at, x.shape[2:], kernel, strides, pads)
        )
        y[n, c, *at] = join(x[n, c, *window])
    return y


def hat(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bilinear samples of [..., H, W]; beyond the image they are 0."""
    height, width = image.shape[-2:]
    y = np.zeros((*image.shape[:-2], len(rows), len(columns)))
    for (i, p), (j, q) in itertools.product(enumerate(rows), enumerate(columns)):
        if 0 <= p <= height - 1 and 0 <= q <= width - 1:
            a, b = int(p), int(q)
            c, d = min(a + 1, height - 1), min(b + 1, width - 1)
            top = image[..., a, b] * (1 - q + b) + image[..., a, d] * (q - b)
            low = image[..., c, b] * (1 - q + b) + image[..., c, d] * (q - b)
            y[..., i, j] = top * (1 - p + a) + low * (p - a)
    return y


def spread(mode: int, start: float, end: float, count: int) -> np.ndarray:
    """Positions of a box's samples; its interval [0, X - 1] is [start, end]."""
    size = end - start + 1
    if mode in (0, 1):
        if mode == 1 and count == 1:
            return np.array([(start + end) / 2])
        return np.linspace(start, end, count)
    if mode == 2:
        return start + np.minimum(size - 1, np.linspace(0, size - size / count, count))
    spacing = max(1, size - 1) / count
    return start + np.minimum(size - 1, 0.5 * spacing + np.arange(count) * spacing)


BOXES = np.array([[0.5, 1.0, 3.25, 5.5], [2.0, 0.25, 3.5, 7.0], [-0.5, 2.0, 4.0, 3.0]])


def sampling() -> Iterator[Case]:
    for label, mode, size in (
        ("offset", 3, (4, 9)),
        ("align one", 1, (1, 4)),
        ("offset one", 3, (2, 1)),
    ):
        yield Case(
            "resizeBilinear", ((2, 3, 5, 7),), setting(targetSize=size, mode__samplingMethod=mode),
            lambda x, m=mode, s=size: hat(x, *(spread(m, 0, n - 1, k) for n, k in zip((5, 7), s))),
            label,
        )  # fmt: skip
    grids = (
        lambda n, k: np.minimum(n - 1, np.arange(k) * n / k),
        lambda n, k: np.linspace(0, n - 1, k),
        lambda n, k: np.clip((np.arange(k) + 0.5) * n / k - 0.5, 0, n - 1),
    )
    for kind, places in enumerate(grids):
        yield Case(
            "upsample", ((2, 3, 5, 7),),
            setting(mode=1, linearUpsampleMode=kind, fractionalScalingFactor=(1.8002, 1.5)),
            lambda x, f=places: hat(x, f(5, 9), f(7, 10)), f"fractions {kind}",
        )  # fmt: skip
    shape, boxes = (1, 2, 3, 5, 7), BOXES.reshape(3, 1, 4, 1, 1)
    for mode, size in itertools.product(range(4), ((2, 3), (1, 1))):

        def each(x, b, m=mode, s=size):
            return np.stack(
                [
                    hat(
                        x[0],
                        spread(m, v[0] / 2, v[2] / 2, s[0]),
                        spread(m, v[1] / 2, v[3] / 2, s[1]),
                    )
                    for v in b[:, 0, :, 0, 0]
                ]
            )

        yield Case(
            "cropResize", (shape, boxes.shape),
            setting(targetSize=size, spatialScale=0.5, mode__samplingMethod=mode), each,
            f"{mode} {size}", given={1: boxes},
        )  # fmt: skip
    orders = (
        lambda v: v, lambda v: v[[1, 0, 3, 2]],
        lambda v: np.array([v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2]),
        lambda v: np.array([v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2]),
    )  # fmt: skip
    of = np.array([[1, 0.1, 0.3, 0.6, 0.9], [0, 0.25, 0.5, 0.75, 0.5]]).reshape(2, 1, 5, 1, 1)
    for kind, corners in enumerate(orders):

        def chosen(x, b, f=corners):
            parts = []
            for batch, *box in b[:, 0, :, 0, 0]:
                top, left, low, right = f(np.array(box)) * [4, 6, 4, 6]
                parts.append(
                    hat(x[0, int(batch)], np.linspace(top, low, 2), np.linspace(left, right, 3))
                )
            return np.stack(parts)[:, None]

        yield Case(
            "cropResize", (shape, of.shape),
            setting(targetSize=(2, 3), spatialScale=1.0, normalizedCoordinates=True,
                    boxIndicesMode__boxMode=kind), chosen, f"order {kind}", given={1: of},
        )  # fmt: skip
