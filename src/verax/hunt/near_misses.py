"""Near misses of the patterns that optimizers fuse: one constant, axis, exponent or order off.

Each pattern is drawn right as well, so that the fusion itself is tried. A runtime that recognizes
a pattern without looking at what was changed computes another function.
"""

from __future__ import annotations

import numpy as np

from verax.hunt.case import Draft, FusionPattern, pick
from verax.hunt.eliminations import ELIMINATED
from verax.ir.operator import REGISTRY


def _op(draft: Draft, kind: str, *inputs: str | None, **attributes: object) -> str:
    return draft.add(REGISTRY[kind](**attributes), *inputs)


def _scalar(draft: Draft, value: float) -> str:
    return draft.constant(value, np.float32)


def _axes(draft: Draft, *axes: int) -> str:
    return draft.constant(axes, np.int64)


def _varied(
    draft: Draft, exact: dict[str, float], off: dict[str, float]
) -> tuple[dict[str, float], str]:
    """The constants of a pattern, one of them off in most cases, and which."""
    if draft.random.random() < 0.25:
        return exact, "as it is"
    key = pick(draft.random, sorted(off))
    return {**exact, key: off[key]}, f"{key} = {off[key]:g} instead of {exact[key]:g}"


def _tokens(draft: Draft) -> str:
    return draft.input(draft.normal(2, 5, 12))


def _image(draft: Draft, channels: int = 4) -> str:
    return draft.input(draft.normal(2, channels, 9, 7))


ACTIVATIONS: tuple[tuple[str, dict[str, float]], ...] = (
    ("Relu", {}),
    ("LeakyRelu", {"alpha": -0.3}),
    ("LeakyRelu", {"alpha": 1.5}),
    ("Elu", {"alpha": 0.5}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("Sigmoid", {}),
    ("Clip", {}),
    ("ThresholdedRelu", {"alpha": 0.5}),
    ("Selu", {}),
    ("HardSwish", {}),
    ("Softplus", {}),
)
"""Behind a convolution, some with parameters that no network has."""


def _gelu(draft: Draft) -> tuple[str, str]:
    exact = {"half": 0.5, "one": 1.0, "root": float(np.sqrt(2.0))}
    off = {"half": 0.45, "one": 1.125, "root": float(np.sqrt(3.0))}
    c, changed = _varied(draft, exact, off)
    x = _tokens(draft)
    erf = _op(draft, "Erf", _op(draft, "Div", x, _scalar(draft, c["root"])))
    inner = _op(draft, "Add", erf, _scalar(draft, c["one"]))
    if draft.random.random() < 0.5:
        return _op(draft, "Mul", _op(draft, "Mul", x, inner), _scalar(draft, c["half"])), changed
    return _op(draft, "Mul", _op(draft, "Mul", x, _scalar(draft, c["half"])), inner), changed


def _gelu_tanh(draft: Draft) -> tuple[str, str]:
    exact = {"cubic": 0.044715, "root": float(np.sqrt(2 / np.pi)), "power": 3.0, "half": 0.5}
    off = {"cubic": 0.0625, "root": 0.9, "power": 2.0, "half": 0.4}
    c, changed = _varied(draft, exact, off)
    x = _tokens(draft)
    cube = _op(draft, "Mul", _op(draft, "Pow", x, _scalar(draft, c["power"])),
               _scalar(draft, c["cubic"]))  # fmt: skip
    tanh = _op(
        draft, "Tanh", _op(draft, "Mul", _op(draft, "Add", x, cube), _scalar(draft, c["root"]))
    )
    inner = _op(draft, "Add", tanh, _scalar(draft, 1.0))
    return _op(draft, "Mul", _op(draft, "Mul", x, _scalar(draft, c["half"])), inner), changed


def _quick_gelu(draft: Draft) -> tuple[str, str]:
    factor = pick(draft.random, (1.702, 1.0, 1.5, -1.702))
    x = _tokens(draft)
    scaled = _op(draft, "Mul", x, _scalar(draft, factor))
    return _op(draft, "Mul", x, _op(draft, "Sigmoid", scaled)), f"factor {factor:g}"


def _layer_norm(draft: Draft) -> tuple[str, str]:
    changed = pick(draft.random, ("as it is", "mean over axis -2", "variance over axis -2",
                                  "both over axis -2", "large epsilon", "epsilon outside the root",
                                  "divisor swapped", "bias of axis -2"))  # fmt: skip
    x = _tokens(draft)
    first = -2 if changed in ("mean over axis -2", "both over axis -2") else -1
    second = -2 if changed in ("variance over axis -2", "both over axis -2") else -1
    mean = _op(draft, "ReduceMean", x, _axes(draft, first), keepdims=True)
    centered = (
        _op(draft, "Sub", x, mean) if changed != "divisor swapped" else _op(draft, "Sub", mean, x)
    )
    square = _op(draft, "Pow", centered, _scalar(draft, 2.0))
    variance = _op(draft, "ReduceMean", square, _axes(draft, second), keepdims=True)
    epsilon = _scalar(draft, 0.5 if changed == "large epsilon" else 1e-5)
    if changed == "epsilon outside the root":
        epsilon = _scalar(draft, 0.25)
        root = _op(draft, "Add", _op(draft, "Sqrt", variance), epsilon)
    else:
        root = _op(draft, "Sqrt", _op(draft, "Add", variance, epsilon))
    y = _op(draft, "Div", centered, root)
    shape = (5, 1) if changed == "bias of axis -2" else (12,)
    y = _op(draft, "Mul", y, draft.constant(draft.normal(12)))
    return _op(draft, "Add", y, draft.constant(draft.normal(*shape))), changed


def _rms_norm(draft: Draft) -> tuple[str, str]:
    changed = pick(
        draft.random, ("as it is", "over axis -2", "sum instead of mean", "large epsilon")
    )
    x = _tokens(draft)
    kind = "ReduceSum" if changed == "sum instead of mean" else "ReduceMean"
    axis = -2 if changed == "over axis -2" else -1
    square = _op(draft, kind, _op(draft, "Mul", x, x), _axes(draft, axis), keepdims=True)
    epsilon = _scalar(draft, 0.5 if changed == "large epsilon" else 1e-6)
    root = _op(draft, "Sqrt", _op(draft, "Add", square, epsilon))
    y = _op(draft, "Div", x, root)
    return _op(draft, "Mul", y, draft.constant(draft.normal(12))), changed


def _softmax(draft: Draft) -> tuple[str, str]:
    changed = pick(draft.random, ("as it is", "maximum over axis 1", "sum over axis 1"))
    x = _tokens(draft)
    top = _op(draft, "ReduceMax", x, _axes(draft, 1 if "maximum" in changed else 2), keepdims=True)
    e = _op(draft, "Exp", _op(draft, "Sub", x, top))
    total = _op(draft, "ReduceSum", e, _axes(draft, 1 if "sum" in changed else 2), keepdims=True)
    return _op(draft, "Div", e, total), changed


def _matmul_add(draft: Draft) -> tuple[str, str]:
    shape = pick(draft.random, ((7,), (1, 7), (5, 1), (5, 7), (2, 1, 7), (2, 5, 1), (1,), ()))
    rows = draft.input(draft.normal(*pick(draft.random, ((2, 5, 12), (5, 12)))))
    product = _op(draft, "MatMul", rows, draft.constant(draft.normal(12, 7)))
    bias = draft.constant(draft.normal(*shape))
    operands = (product, bias) if draft.random.random() < 0.5 else (bias, product)
    kind = pick(draft.random, ("Add", "Add", "Sub", "Mul"))
    return _op(draft, kind, *operands), f"{kind} of {list(shape)}"


def _transposed_matmul(draft: Draft) -> tuple[str, str]:
    order = pick(
        draft.random, ((0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 2, 1), (1, 0, 3, 2), (0, 2, 1, 3))
    )
    right = draft.normal(2, 3, 4, 6)
    stored = draft.input(right.transpose(np.argsort(order)))
    left = draft.input(draft.normal(2, 3, 5, 4))
    product = _op(draft, "MatMul", left, _op(draft, "Transpose", stored, perm=order))
    factor = _scalar(draft, pick(draft.random, (0.5, -2.0, 1.0)))
    return _op(draft, "Mul", product, factor), f"perm {order}"


def _attention(draft: Draft) -> tuple[str, str]:
    axis = pick(draft.random, (-1, -1, -2, 1))
    q, k = draft.input(draft.normal(2, 3, 5, 8)), draft.input(draft.normal(2, 3, 6, 8))
    v = draft.input(draft.normal(2, 3, 6, 4))
    scores = _op(draft, "MatMul", q, _op(draft, "Transpose", k, perm=(0, 1, 3, 2)))
    scale = pick(draft.random, (0.35355338, 0.25, 3.0, -0.5))
    scores = _op(draft, "Mul", scores, _scalar(draft, scale))
    if draft.random.random() < 0.6:
        mask = pick(draft.random, ((5, 6), (2, 1, 5, 6), (1, 3, 1, 6), (2, 1, 1, 6)))
        scores = _op(draft, "Add", scores, draft.constant(draft.normal(*mask)))
    weights = _op(draft, "Softmax", scores, axis=axis)
    return _op(draft, "MatMul", weights, v), f"softmax over axis {axis}, scale {scale:g}"


def _conv(draft: Draft, x: str, *, out: int = 6, groups: int = 1, bias: bool | None = None) -> str:
    channels = draft.shape(x)[1]
    w = draft.constant(draft.normal(out, channels // groups, 3, 2) / 3)
    b = (
        draft.constant(draft.normal(out))
        if (draft.random.random() < 0.5 if bias is None else bias)
        else None
    )
    pads = pick(draft.random, (((1, 1), (0, 1)), ((0, 2), (1, 0)), ((0, 0), (0, 0))))
    strides = pick(draft.random, ((1, 1), (1, 1), (2, 1)))
    return _op(draft, "Conv", x, w, *([b] if b else []), pads=pads, groups=groups, strides=strides)


def _batch_norm(draft: Draft, x: str) -> str:
    c = draft.shape(x)[1]
    arrays = (draft.normal(c), draft.normal(c), draft.normal(c),
              draft.random.uniform(0.2, 2.0, c).astype(np.float32))  # fmt: skip
    epsilon = pick(draft.random, (1e-5, 0.1))
    return _op(draft, "BatchNormalization", x, *map(draft.constant, arrays), epsilon=epsilon)


def _conv_batch_norm(draft: Draft) -> tuple[str, str]:
    changed = pick(
        draft.random, ("behind", "in front, with pads", "behind, read twice", "behind a depthwise")
    )
    if changed.startswith("in front"):
        return _conv(draft, _batch_norm(draft, _image(draft))), changed
    depthwise = changed == "behind a depthwise"
    y = _conv(draft, _image(draft), out=8 if depthwise else 6, groups=4 if depthwise else 1)
    n = _batch_norm(draft, y)
    return (_op(draft, "Add", n, y) if "twice" in changed else n), changed


def _conv_scale(draft: Draft) -> tuple[str, str]:
    y = _conv(draft, _image(draft), out=7)
    shape = draft.shape(y)
    along = pick(
        draft.random, ((1, 7, 1, 1), (7, 1, 1), (shape[3],), (shape[2], 1), (1,), (2, 1, 1, 1), ())
    )
    kind = pick(draft.random, ("Mul", "Add", "Sub", "Div"))
    numbers = draft.constant(draft.random.uniform(0.5, 1.5, along), np.float32)
    operands = (y, numbers) if kind == "Div" or draft.random.random() < 0.6 else (numbers, y)
    return _op(draft, kind, *operands), f"{kind} of {list(along)}"


def _conv_activation(draft: Draft) -> tuple[str, str]:
    kind, attributes = pick(draft.random, ACTIVATIONS)
    y = _conv(draft, _image(draft))
    if kind == "Clip":
        low, high = pick(draft.random, ((0.0, 6.0), (-0.5, 0.75), (0.5, -0.5), (0.0, 0.0)))
        return _op(
            draft, "Clip", y, _scalar(draft, low), _scalar(draft, high)
        ), f"Clip {low:g} {high:g}"
    return _op(draft, kind, y, **attributes), f"{kind} {attributes}"


def _hard_swish(draft: Draft) -> tuple[str, str]:
    c, changed = _varied(draft, {"shift": 3.0, "top": 6.0, "divisor": 6.0},
                         {"shift": 2.5, "top": 5.0, "divisor": 4.0})  # fmt: skip
    x = _image(draft)
    inner = _op(draft, "Clip", _op(draft, "Add", x, _scalar(draft, c["shift"])),
                _scalar(draft, 0.0), _scalar(draft, c["top"]))  # fmt: skip
    return _op(draft, "Div", _op(draft, "Mul", x, inner), _scalar(draft, c["divisor"])), changed


def _pad_window(draft: Draft) -> tuple[str, str]:
    """Pads that a window may or may not take in: of channels, of another value, mirrored."""
    x = _image(draft)
    mode = pick(draft.random, ("constant", "constant", "edge", "reflect"))
    widths = [0, 0, 1, 2, 0, 0, 0, 1]
    if draft.random.random() < 0.25:
        widths[1], widths[5] = 1, 1
    value = pick(draft.random, (0.0, 0.0, 1.5, -2.0)) if mode == "constant" else 0.0
    operands = [x, draft.constant(widths, np.int64)]
    padded = _op(
        draft, "Pad", *operands, *([_scalar(draft, value)] if mode == "constant" else []), mode=mode
    )
    kind = pick(draft.random, ("Conv", "MaxPool", "AveragePool"))
    changed = f"Pad {mode} {value:g} {widths}, then {kind}"
    if kind == "Conv":
        return _conv(draft, padded), changed
    more = {"count_include_pad": bool(draft.random.random() < 0.5)} if kind == "AveragePool" else {}
    return _op(
        draft, kind, padded, kernel_shape=(3, 2), strides=(2, 1), pads=((1, 0), (0, 1)), **more
    ), changed


def _movement_pair(draft: Draft) -> tuple[str, str]:
    x = draft.input(draft.normal(2, 3, 4, 5))
    first, second = (tuple(map(int, draft.random.permutation(4))) for _ in range(2))
    y = _op(draft, "Transpose", x, perm=first)
    if draft.random.random() < 0.5:
        y = _op(draft, "Relu", y)
    y = _op(draft, "Transpose", y, perm=second)
    return y, f"Transpose {first} then {second}"


def _shuffle(draft: Draft) -> tuple[str, str]:
    x = draft.input(draft.normal(2, 6, 4, 5))
    groups = pick(draft.random, (2, 3))
    order = pick(draft.random, ((0, 2, 1, 3, 4), (0, 2, 1, 4, 3), (0, 1, 2, 4, 3)))
    split = _op(draft, "Reshape", x, draft.constant([2, groups, 6 // groups, 4, 5], np.int64))
    transposed = _op(draft, "Transpose", split, perm=order)
    return _op(
        draft, "Reshape", transposed, draft.constant([2, 6, 4, 5], np.int64)
    ), f"{groups} groups, {order}"


def _slices(draft: Draft) -> tuple[str, str]:
    """Slices of slices, which merge into one only with care for ends, steps and clamping."""
    y, texts = draft.input(draft.normal(3, 11, 7)), []
    for _ in range(2):
        axis = pick(draft.random, (1, 1, 2))
        begin, end, step = pick(
            draft.random, ((1, 9, 2), (-1, -100, -1), (-2, 1, -2), (2, 100, 1), (-6, -1, 1))
        )
        bounds = ([begin], [end], [axis], [step])
        y = _op(draft, "Slice", y, *(draft.constant(b, np.int64) for b in bounds))
        texts.append(f"[{begin}:{end}:{step}] of axis {axis}")
    return y, " then ".join(texts)


def _powers(draft: Draft) -> tuple[str, str]:
    exponent = pick(draft.random, (0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, 2.5))
    x = draft.input(np.abs(draft.normal(2, 5, 12)) + np.float32(0.25))
    if exponent in (0.0, 1.0, 2.0, 3.0):
        x = draft.input(draft.normal(2, 5, 12))
    return _op(draft, "Pow", x, _scalar(draft, exponent)), f"exponent {exponent:g}"


def _reductions(draft: Draft) -> tuple[str, str]:
    kinds = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
    first, second = pick(draft.random, kinds), pick(draft.random, kinds)
    keep = bool(draft.random.random() < 0.5)
    axes = pick(draft.random, ((1, -1), (2, 1), (-1, 1), (1, 1)))
    y = _op(
        draft, first, draft.input(draft.normal(2, 5, 4, 3)), _axes(draft, axes[0]), keepdims=keep
    )
    return _op(
        draft, second, y, _axes(draft, axes[1]), keepdims=keep
    ), f"{first} {axes[0]}, {second} {axes[1]}"


def _quantize_pair(draft: Draft) -> tuple[str, str]:
    dtype = pick(draft.random, (np.int8, np.uint8))
    point = (
        int(draft.random.integers(-20, 20))
        if dtype is np.int8
        else int(draft.random.integers(0, 200))
    )
    scales = (0.03125, pick(draft.random, (0.03125, 0.0625)))
    x = _image(draft)
    q = _op(draft, "QuantizeLinear", x, _scalar(draft, scales[0]), draft.constant(point, dtype))
    point += pick(draft.random, (0, 0, 3))
    y = _op(draft, "DequantizeLinear", q, _scalar(draft, scales[1]), draft.constant(point, dtype))
    w = draft.constant(draft.normal(6, 4, 3, 2) / 3)
    kind = pick(draft.random, ("Relu", "Conv", "MaxPool", "Transpose"))
    if kind == "Conv":
        return _op(draft, "Conv", y, w), f"scales {scales}, Conv"
    if kind == "MaxPool":
        return _op(draft, "MaxPool", y, kernel_shape=(2, 3)), f"scales {scales}, MaxPool"
    more = {"perm": (0, 2, 3, 1)} if kind == "Transpose" else {}
    return _op(draft, kind, y, **more), f"scales {scales}, {kind}"


PATTERNS: tuple[FusionPattern, ...] = (
    *ELIMINATED,
    FusionPattern("Gelu", _gelu),
    FusionPattern("Gelu by tanh", _gelu_tanh),
    FusionPattern("QuickGelu", _quick_gelu),
    FusionPattern("LayerNormalization", _layer_norm),
    FusionPattern("RMSNormalization", _rms_norm),
    FusionPattern("Softmax", _softmax),
    FusionPattern("MatMul and Add", _matmul_add),
    FusionPattern("Transpose and MatMul", _transposed_matmul),
    FusionPattern("Attention", _attention),
    FusionPattern("Conv and BatchNormalization", _conv_batch_norm),
    FusionPattern("Conv and a scale", _conv_scale),
    FusionPattern("Conv and an activation", _conv_activation),
    FusionPattern("HardSwish", _hard_swish),
    FusionPattern("Pad and a window", _pad_window),
    FusionPattern("Transpose and Transpose", _movement_pair),
    FusionPattern("channel shuffle", _shuffle),
    FusionPattern("Slice and Slice", _slices),
    FusionPattern("Pow", _powers),
    FusionPattern("two reductions", _reductions),
    FusionPattern("Quantize and Dequantize", _quantize_pair),
)
