"""Writes operators.npz: small MXNet networks of one operator, and what MXNet itself answers.

Run by hand where MXNet 1.9.1 is installed (`pip install mxnet==1.9.1`); the tests read the file.
Each case holds the bytes of its params file (without arrays: none), its inputs, and its outputs;
`symbols` is the JSON text of all symbols by case.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

np.bool = bool  # MXNet 1.9.1 still uses this name
os.environ.setdefault("MXNET_MKLDNN_ENABLED", "0")  # MXNet's own kernels
import detector_cases  # noqa: E402
import mxnet as mx  # noqa: E402

S = mx.sym
RNG = np.random.default_rng(7)
IMAGE = (2, 6, 5, 7)


VARIABLES = {}


def x(name="data"):
    return VARIABLES.setdefault(name, S.Variable(name))


def cases():
    """(name, symbol, shapes of inputs, names of inputs drawn from [0, 1])."""
    conv = {"kernel": (3, 2), "num_filter": 4}
    yield "conv", S.Convolution(x(), stride=(2, 1), pad=(1, 0), dilate=(1, 2), **conv), IMAGE
    yield "conv_groups", S.Convolution(x(), num_group=2, no_bias=True, **conv), IMAGE
    yield "conv_1d", S.Convolution(x(), kernel=(3,), stride=(2,), pad=(1,), num_filter=5), (2, 3, 8)
    yield (
        "conv_3d",
        S.Convolution(x(), kernel=(2, 3, 1), pad=(1, 0, 0), num_filter=5),
        (2, 3, 4, 5, 6),
    )
    deconv = {"kernel": (3, 4), "stride": (2, 3), "num_filter": 4}
    yield "deconv", S.Deconvolution(x(), pad=(1, 0), adj=(1, 2), no_bias=False, **deconv), IMAGE
    # No dilation: MXNet's CPU kernel gets it wrong, and oneDNN refuses it.
    yield "deconv_groups", S.Deconvolution(x(), num_group=2, **deconv), IMAGE
    yield "deconv_target", S.Deconvolution(x(), target_shape=(10, 20), pad=(1, 1), **deconv), IMAGE
    yield (
        "deconv_1d",
        S.Deconvolution(x(), kernel=(4,), stride=(3,), pad=(1,), adj=(2,), num_filter=2),
        (2, 3, 5),
    )
    pool = {"kernel": (3, 2), "stride": (2, 2)}
    for kind in ("max", "avg", "sum"):
        yield f"pool_{kind}", S.Pooling(x(), pool_type=kind, pad=(1, 0), **pool), IMAGE
        full = {"pooling_convention": "full", "pad": (1, 0)}
        yield f"pool_{kind}_full", S.Pooling(x(), pool_type=kind, **full, **pool), (2, 3, 8, 9)
        yield f"pool_{kind}_global", S.Pooling(x(), pool_type=kind, global_pool=True), IMAGE
    yield (
        "pool_avg_inside",
        S.Pooling(x(), pool_type="avg", pad=(1, 1), count_include_pad=False, **pool),
        IMAGE,
    )
    yield "pool_lp", S.Pooling(x(), pool_type="lp", p_value=2, **pool), IMAGE
    yield "pool_lp_1", S.Pooling(x(), pool_type="lp", p_value=1, **pool), IMAGE
    same = {"kernel": (3,), "stride": (2,), "pad": (0, 0, 0), "pooling_convention": "same"}
    yield "pool_same", S.Pooling(x(), pool_type="max", **same), (2, 3, 8)
    yield "batch_norm", S.BatchNorm(x()), IMAGE
    yield "batch_norm_gamma", S.BatchNorm(x(), fix_gamma=False, eps=0.1), IMAGE
    yield "batch_norm_last", S.BatchNorm(x(), fix_gamma=False, axis=3), IMAGE
    yield "instance_norm", S.InstanceNorm(x(), eps=0.02), IMAGE
    yield "layer_norm", S.LayerNorm(x(), eps=0.02), (2, 3, 5)
    yield "lrn", S.LRN(x(), nsize=3, alpha=0.5, beta=0.6, knorm=1.5), IMAGE
    for mode in ("instance", "channel", "spatial"):
        yield f"l2_{mode}", S.L2Normalization(x(), mode=mode, eps=0.3), (7, 3, 4)
    yield "dense", S.FullyConnected(x(), num_hidden=4), (2, 3, 5)
    yield "dense_last", S.FullyConnected(x(), num_hidden=4, flatten=False), (2, 3, 5)
    yield "dense_no_bias", S.FullyConnected(x(), num_hidden=4, no_bias=True), (3, 5)
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        yield f"act_{kind}", S.Activation(x(), act_type=kind), (2, 3, 5)
    for kind in ("leaky", "elu", "selu", "gelu", "prelu"):
        yield f"leaky_{kind}", S.LeakyReLU(x(), act_type=kind, slope=0.3), IMAGE
    yield "leaky_rrelu", S.LeakyReLU(x(), act_type="rrelu", lower_bound=0.2)[0], IMAGE
    yield "hard_sigmoid", S.hard_sigmoid(x(), alpha=0.3, beta=0.4), (2, 3, 5)
    yield "clip", S.clip(x(), a_min=-0.5, a_max=0.25), (2, 3, 5)
    for name in ("square", "exp", "abs", "negative", "floor", "ceil", "sign", "relu", "erf"):
        yield name, getattr(S, name)(x()), (2, 3, 5)
    yield "rsqrt", S.rsqrt(x() * x() + 0.5), (2, 3, 5)
    yield "scalars", 3 - 2 / (1.5 + (x() * x()) ** 2) - (2 ** (x() - 0.5)) / 4, (2, 3, 5)
    yield "extremes", S._internal._maximum_scalar(-x(), scalar=-0.25), (2, 3, 5)
    yield "minimum", S._internal._minimum_scalar(x(), scalar=0.5), (2, 3, 5)
    yield "binary", x() * x("other") - x() / (S.abs(x("other")) + 1), [(2, 3, 5)] * 2
    yield "broadcast", S.broadcast_mul(x(), x("other")), [(2, 3, 5), (1, 3, 1)]
    yield "broadcast_sub", S.broadcast_sub(x(), x("other")), [(2, 3, 5), (2, 1, 5)]
    yield "broadcast_max", S.broadcast_maximum(x(), x("other")), [(2, 3, 5), (1, 3, 5)]
    yield "add_n", S.add_n(x(), x("other"), x("third")), [(2, 3, 5)] * 3
    yield "where", S.where(S.floor(x()), x(), x("other")), [(2, 3, 5)] * 2
    yield "dropout", S.Dropout(x(), p=0.4), (2, 3, 5)
    yield "softmax", S.softmax(x(), axis=1, temperature=2.0), (2, 3, 5)
    yield "log_softmax", S.log_softmax(x()), (2, 3, 5)
    yield "softmax_activation", S.SoftmaxActivation(x()), (2, 3, 5)
    yield "softmax_channels", S.SoftmaxActivation(x(), mode="channel"), IMAGE
    yield "softmax_output", S.SoftmaxOutput(x(), x("label")), (3, 5)
    yield "softmax_output_3d", S.SoftmaxOutput(x(), x("label")), (2, 3, 5)
    multi = S.SoftmaxOutput(x(), x("label"), multi_output=True)
    yield "softmax_multi", multi, (2, 3, 5)
    keep = S.SoftmaxOutput(x(), x("label"), preserve_shape=True)
    yield "softmax_keep", keep, (2, 3, 5)
    yield "logistic", S.LogisticRegressionOutput(x(), x("label")), (3, 5)
    yield "sum", S.sum(x(), axis=(1, 3)), IMAGE
    yield "mean", S.mean(x(), axis=1, exclude=True, keepdims=True), IMAGE
    yield "max", S.max(x(), axis=2), IMAGE
    yield "min_all", S.min(x()), (2, 3, 5)
    yield "flatten", S.Flatten(x()), IMAGE
    yield "concat", S.Concat(x(), x("other"), dim=2), [(2, 3, 5), (2, 3, 4)]
    yield "stack", S.stack(x(), x("other"), axis=1), [(2, 3, 5)] * 2
    yield "transpose", S.transpose(x(), axes=(0, 2, 3, 1)), IMAGE
    yield "transpose_all", S.transpose(x()), (2, 3, 5)
    yield "swap", S.SwapAxis(x(), dim1=1, dim2=3), IMAGE
    yield "expand", S.expand_dims(x(), axis=-1), (2, 3, 5)
    yield "squeeze", S.squeeze(x(), axis=1), (2, 1, 5)
    for i, (shape, given, back) in enumerate(
        (
            ((0, -1), (2, 3, 4, 5), False),
            ((-2, 1), (2, 3, 4), False),
            ((-3, -2), (2, 3, 4, 5), False),
            ((0, -4, 2, -1, 0), (2, 6, 5), False),
            ((0, -3, 0), (2, 3, 4, 5), False),
            ((-1, 0), (10, 5, 4), True),
            ((-1, 2, -4, 0), (6, 5), True),
        )
    ):
        yield f"reshape_{i}", S.Reshape(x(), shape=shape, reverse=back), given
    yield "slice", S.slice(x(), begin=(None, 1, 4), end=(None, 3, 0), step=(1, 1, -2)), (2, 3, 5)
    yield "slice_axis", S.slice_axis(x(), axis=2, begin=1, end=-1), (2, 3, 5)
    yield "slice_axis_open", S.slice_axis(x(), axis=1, begin=1, end=None), (2, 3, 5)
    yield "slice_like", S.slice_like(x(), x("other"), axes=(1, 2)), [(2, 4, 5), (2, 3, 2)]
    yield "crop", S.Crop(x(), num_args=1, offset=(1, 2), h_w=(4, 5)), IMAGE
    centred = S.Crop(x(), x("other"), num_args=2, center_crop=True)
    yield "crop_centre", centred, [IMAGE, (2, 6, 3, 5)]
    parts = S.SliceChannel(x(), num_outputs=3, axis=1)
    yield "split", parts[2] - parts[0], IMAGE
    single = S.SliceChannel(x(), num_outputs=3, axis=1, squeeze_axis=True)
    yield "split_squeezed", S.Group([single[1], single[2]]), (2, 3, 5)
    widths = (0, 0, 0, 0, 1, 2, 3, 0)
    yield "pad", S.Pad(x(), mode="constant", pad_width=widths, constant_value=0.5), IMAGE
    for mode in ("edge", "reflect"):
        yield f"pad_{mode}", S.Pad(x(), mode=mode, pad_width=widths), IMAGE
    yield "tile", S.tile(x(), reps=(1, 2, 3)), (2, 3, 5)
    yield "embedding", S.Embedding(x() * 3 + 1, input_dim=4, output_dim=3), (2, 5)
    yield "dot", S.dot(x(), x("other"), transpose_b=True), [(2, 3), (4, 3)]
    yield "batch_dot", S.batch_dot(x(), x("other"), transpose_a=True), [(2, 3, 4), (2, 3, 5)]
    yield "depth_to_space", S.depth_to_space(x(), block_size=2), (2, 12, 3, 4)
    yield "space_to_depth", S.space_to_depth(x(), block_size=2), (2, 3, 4, 6)
    yield "up_nearest", S.UpSampling(x(), scale=2, sample_type="nearest", num_args=1), IMAGE
    for scale in (2, 3):
        up = {"sample_type": "bilinear", "num_filter": 6, "num_args": 2}
        yield f"up_bilinear_{scale}", S.UpSampling(x(), x("weight"), scale=scale, **up), IMAGE
    for corners in (True, False):
        yield (
            f"resize_{corners}",
            S.contrib.BilinearResize2D(x(), height=11, width=5, align_corners=corners),
            IMAGE,
        )
    prior = {"sizes": (0.3, 0.4), "ratios": (1, 2, 0.5)}
    yield "prior", 1 * S.contrib.MultiBoxPrior(x(), **prior), (2, 3, 4, 5)
    yield (
        "prior_steps",
        1 * S.contrib.MultiBoxPrior(x(), clip=True, steps=(0.3, 0.2), offsets=(0.4, 0.6), **prior),
        (2, 3, 4, 5),
    )
    ssd = [(2, 4, 13), (2, 52), (1, 13, 4)]
    for i, form in enumerate(
        (
            {},
            {"clip": False, "nms_threshold": 0.2},
            {"threshold": 0.6, "variances": (0.2, 0.3, 0.1, 0.15)},
            {"force_suppress": True, "nms_threshold": 0.1},
            {"nms_topk": 4, "nms_threshold": 0.3},
            {"nms_threshold": 0.0},
        )
    ):
        found = S.contrib.MultiBoxDetection(x("scores"), x("offsets"), x("anchors"), **form)
        yield f"detection_{i}", found, ssd

    yield "ssd", detector(), (2, 3, 12, 16)
    yield "argmax", S.argmax(x(), axis=1), (2, 3, 5)
    yield "argmin", S.argmin(x(), axis=2, keepdims=True), (2, 3, 5)
    yield "norm", S.norm(x(), ord=2, axis=(1, 2), keepdims=True), (2, 3, 5)
    yield "broadcast_to", S.broadcast_to(x(), shape=(0, 4, 5)), (2, 1, 5)
    yield "broadcast_axis", S.broadcast_axis(x(), axis=(0, 2), size=(3, 4)), (1, 2, 1)
    yield "broadcast_like", S.broadcast_like(x(), x("other")), [(2, 1, 5), (2, 4, 5)]
    yield "compared", S.broadcast_lesser(x(), x("other")) + (x() > 0.25), [(2, 3, 5), (1, 3, 5)]
    yield "pooled_1", S.contrib.AdaptiveAvgPooling2D(x(), output_size=1), IMAGE
    yield "pooled_many", S.contrib.AdaptiveAvgPooling2D(x(), output_size=(2, 3)), (2, 3, 4, 9)
    yield "repeat", S.repeat(x(), repeats=2, axis=1), (2, 3, 5)
    yield "group_norm", S.GroupNorm(x(), num_groups=2, eps=0.2), IMAGE
    yield from detector_cases.cases(S, x)


def detector():
    """A small SSD: two scales, each with classes, offsets and anchors, joined and decoded."""
    small = S.Activation(conv("first", x(), 6, 2), act_type="relu")
    found = {"classes": [], "offsets": [], "anchors": []}
    for i, (level, sizes) in enumerate(
        ((small, (0.2, 0.3)), (conv("second", small, 5, 2), (0.6,)))
    ):
        ratios = (1, 2, 0.5)
        count = len(sizes) + len(ratios) - 1
        for kind, channels in (("classes", count * 4), ("offsets", count * 4)):
            made = S.transpose(0.2 * conv(f"{kind}{i}", level, channels, 1), axes=(0, 2, 3, 1))
            found[kind].append(S.Flatten(made))
        found["anchors"].append(S.contrib.MultiBoxPrior(level, sizes=sizes, ratios=ratios))
    joined = {k: S.Concat(*v, dim=1) for k, v in found.items()}
    scores = S.transpose(S.Reshape(joined["classes"], shape=(0, -1, 4)), axes=(0, 2, 1))
    scores = S.SoftmaxActivation(scores, mode="channel")
    form = {"nms_threshold": 0.4, "threshold": 0.2, "nms_topk": 30}
    return S.contrib.MultiBoxDetection(scores, joined["offsets"], joined["anchors"], **form)


def conv(name, data, channels, stride):
    form = {"kernel": (3, 3), "stride": (stride, stride), "pad": (1, 1), "name": name}
    return S.Convolution(data, num_filter=channels, **form)


def corners(value):
    """Boxes (x1, y1, x2, y2) of numbers in [-1, 1]."""
    low = np.abs(value[..., :2]) / 2
    return np.concatenate([low, low + 0.2 + np.abs(value[..., 2:]) / 4], -1)


def detections(value):
    """Rows (class, score, x1, y1, x2, y2)."""
    classes = np.floor(3 * (value[..., :1] + 1) / 2) - (value[..., :1] > 0.8)
    return np.concatenate([classes, value[..., 1:2], corners(value[..., 2:]) - 0.1], -1)


def regions(value):
    """Regions (image of 2, x1, y1, x2, y2) of images of about 20 pixels."""
    return np.concatenate([value[:, :1] > 0, 20 * corners(value[:, 1:])], -1)


DRAWN = {
    "anchors": corners,
    "boxes": corners,
    "rows": detections,
    "rois": regions,
    "places": lambda v: 8 * v,
    "numbers": lambda v: np.floor(np.abs(v) * 1.9) - 1,
    "lengths": lambda v: 1 + np.floor(np.abs(v) * 3),
    "turned_gamma": lambda v: np.sign(np.sin(30 * v)) * v,
}
"""Inputs that must be more than numbers in [-1, 1], by name."""


def drawn(name, value):
    """A variable's value, made of numbers in [-1, 1]."""
    return DRAWN.get(name, lambda v: v)(value)


PARAMETERS = ("weight", "bias", "gamma", "beta", "label", "parameters")
"""Last parts of the names of what is no input."""


def arrays_of(symbol, shapes):
    """Values for every variable; the first ones, as many as `shapes`, are inputs."""
    names = symbol.list_arguments()
    params = [n for n in names if n.split("_")[-1] in PARAMETERS]
    inputs = [n for n in names if n not in params]
    known = dict(zip(inputs, shapes))
    found, _, states = symbol.infer_shape(**known)
    values = {}
    for name, shape in [*zip(names, found), *zip(symbol.list_auxiliary_states(), states)]:
        value = RNG.uniform(-1, 1, shape)
        if name.endswith(("var", "gamma")) or name == "scores":
            value = np.abs(value) + 0.1
        values[name] = drawn(name, value).astype(np.float32)
    return inputs, values


def write(target, chosen):
    """Answer the chosen cases and store them. A symbol may be what MXNet reads, as plain JSON."""
    stored, symbols = {}, {}
    for name, symbol, given in chosen:
        shapes = given if isinstance(given, list) else [given]
        written = symbol
        if isinstance(symbol, dict):
            symbol = mx.sym.load_json(json.dumps(symbol))
        else:
            written = json.loads(symbol.tojson(remove_amp_cast=False))
        inputs, values = arrays_of(symbol, shapes)
        states = set(symbol.list_auxiliary_states())
        bound = symbol.bind(
            mx.cpu(),
            {n: mx.nd.array(v) for n, v in values.items() if n not in states},
            aux_states={n: mx.nd.array(v) for n, v in values.items() if n in states},
        )
        outputs = bound.forward(is_train=False)
        symbols[name] = written
        kept = {
            f"{'aux' if n in states else 'arg'}:{n}": mx.nd.array(v)
            for n, v in values.items()
            if n not in inputs and n != "label"
        }
        if kept:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "arrays.params")
                mx.nd.save(os.fspath(file), kept)
                stored[f"{name}/params"] = np.frombuffer(file.read_bytes(), np.uint8)
        for i in inputs:
            stored[f"{name}/in:{i}"] = values[i]
        for n, v in zip(symbol.list_outputs(), outputs):
            stored[f"{name}/out:{n}"] = v.asnumpy()
    text = json.dumps(symbols, separators=(",", ":"))
    stored["symbols"] = np.frombuffer(text.encode(), np.uint8)
    np.savez_compressed(target, **stored)


if __name__ == "__main__":
    write(Path(__file__).with_name("operators.npz"), cases())
