"""Writes networks.npz: Gluon's models in miniature, detectors as GluonCV ends them, and what MXNet
answers for them.

Run by hand where MXNet 1.9.1 is installed. Weights are random; gammas have both signs, for a
BatchNorm with a negative one turns a ReLU's or a max pool's side.
"""

from pathlib import Path

import make_operators
import numpy as np
from make_operators import S, mx, x
from mxnet.gluon.model_zoo import vision
from mxnet.gluon.model_zoo.vision import densenet, resnet, squeezenet

RNG = np.random.default_rng(11)


def gluon():
    """(name, block) of Gluon's model zoo with few channels."""
    channels = [4, 6, 8, 10]
    for version, block in ((1, resnet.BasicBlockV1), (2, resnet.BasicBlockV2)):
        kind = (resnet.ResNetV1, resnet.ResNetV2)[version - 1]
        yield f"resnet_v{version}", kind(block, [1, 1, 1], channels, classes=5)
    narrow = [8, 8, 12]
    yield "resnet_bottleneck", resnet.ResNetV1(resnet.BottleneckV1, [1, 1], narrow, classes=5)
    yield "resnet_bottleneck_v2", resnet.ResNetV2(resnet.BottleneckV2, [1, 1], narrow, classes=5)
    yield "mobilenet", vision.MobileNet(0.05, classes=5)
    yield "mobilenet_v2", vision.MobileNetV2(0.1, classes=5)
    made = densenet.DenseNet(4, 3, [2, 1], classes=5)
    made.features[-2]._kwargs["kernel"] = (2, 2)
    made.features[-2]._kwargs["stride"] = (2, 2)
    yield "densenet", made
    yield "fire", squeeze()


def squeeze():
    """Two fire modules of SqueezeNet, and its pools that count half windows."""
    net = mx.gluon.nn.HybridSequential(prefix="fire_")
    with net.name_scope():
        net.add(mx.gluon.nn.Conv2D(6, 3, strides=2, activation="relu"))
        net.add(mx.gluon.nn.MaxPool2D(3, 2, ceil_mode=True))
        net.add(squeezenet._make_fire(3, 4, 5), squeezenet._make_fire(2, 3, 3))
        net.add(mx.gluon.nn.AvgPool2D(3, 2, ceil_mode=True, count_include_pad=False))
    return net


def heads(levels, classes, per_level):
    """Class scores [n, anchors, classes] and offsets [n, anchors * 4] of some feature maps."""
    joined = []
    for kind, size in (("class", classes), ("box", 4)):
        parts = [
            S.Flatten(
                S.transpose(
                    0.5 * make_operators.conv(f"{kind}{i}", level, per_level * size, 1),
                    axes=(0, 2, 3, 1),
                )
            )
            for i, level in enumerate(levels)
        ]
        joined.append(S.Reshape(S.Concat(*parts, dim=1), shape=(0, -1, size)))
    return joined


def features(prefix):
    """Two feature maps, with BatchNorms as Gluon writes them."""
    levels, data = [], x()
    for i, channels in enumerate((6, 5)):
        data = make_operators.conv(f"{prefix}{i}", data, channels, 2)
        data = S.BatchNorm(data, fix_gamma=False, eps=1e-5, name=f"{prefix}{i}_norm")
        data = S.Activation(data, act_type="relu")
        levels.append(data)
    return levels


def gluon_ssd(force):
    """An SSD as GluonCV writes it: constant anchors cut to size, softmax, rows per class, NMS."""
    levels = features("ssd")
    scores, offsets = heads(levels, 4, 2)
    anchors = []
    for i, level in enumerate(levels):
        grid = S.slice_like(
            S.Variable(f"grid{i}_weight", shape=(1, 1, 9, 10, 8)), level * 0, axes=(2, 3)
        )
        anchors.append(S.Reshape(grid, shape=(1, -1, 4)))
    form = {f"std{i}": v for i, v in enumerate((0.1, 0.1, 0.2, 0.2))}
    boxes = S.contrib.box_decode(
        offsets, S.Concat(*anchors, dim=1), format="center", clip=-1, **form
    )
    scores = S.slice_axis(S.softmax(scores, axis=-1), axis=-1, begin=1, end=None)
    template = S.zeros_like(S.slice_axis(scores, axis=-1, begin=0, end=1))
    numbers = S.broadcast_add(template, S.Reshape(S.arange(0, 3), shape=(1, 1, 3)))
    is_found = scores > 0.2
    numbers = S.where(is_found, numbers, S.ones_like(numbers) * -1)
    scores = S.where(is_found, scores, S.zeros_like(scores))
    rows = []
    for i in range(3):
        one = [S.slice_axis(v, axis=-1, begin=i, end=i + 1) for v in (numbers, scores)]
        rows.append(S.Concat(*one, boxes, dim=-1))
    kept = S.contrib.box_nms(
        S.Concat(*rows, dim=1),
        overlap_thresh=0.45,
        topk=40,
        valid_thresh=0.01,
        id_index=0,
        score_index=1,
        coord_start=2,
        force_suppress=force,
    )
    return S.slice_axis(kept, axis=1, begin=0, end=20)


def symbol_ssd(**form):
    """An SSD of the Symbol API: MultiBoxPrior and MultiBoxDetection."""
    levels = features("multi")
    scores, offsets = heads(levels, 4, 4)
    prior = {"sizes": (0.3, 0.45), "ratios": (1, 2, 0.5), "clip": form.pop("clip_anchors")}
    anchors = [S.contrib.MultiBoxPrior(level, **prior) for level in levels]
    scores = S.SoftmaxActivation(S.transpose(scores, axes=(0, 2, 1)), mode="channel")
    joined = S.Concat(*anchors, dim=1)
    return S.contrib.MultiBoxDetection(scores, S.Flatten(offsets), joined, **form)


def center_net():
    """A heat map's peaks as CenterNet finds them."""
    (level, _) = features("peak")
    heat = S.sigmoid(make_operators.conv("heat", level, 3, 1))
    wide = make_operators.conv("wide", level, 2, 1)
    keep = S.broadcast_equal(S.Pooling(heat, kernel=(3, 3), stride=(1, 1), pad=(1, 1)), heat)
    scores, places = S.topk(S.Reshape(heat * keep, shape=(0, -1)), k=6, ret_typ="both")
    size = S.slice_axis(S.shape_array(heat), axis=0, begin=2, end=None)
    area = S.cast(S.prod(size), dtype="float32")
    classes = S.floor(S.broadcast_div(places, area))
    places = S.broadcast_mod(places, area)
    width = S.cast(S.slice_axis(size, axis=0, begin=1, end=2), dtype="float32")
    ys, xs = S.floor(S.broadcast_div(places, width)), S.broadcast_mod(places, width)
    images = S.Reshape(S.repeat(S.arange(0, 2), repeats=6), shape=(-1,))
    flat = [images, *(S.Reshape(v, shape=(-1,)) for v in (ys, xs))]
    channel = [S.zeros_like(images), S.ones_like(images)]
    sizes = [
        S.Reshape(S.gather_nd(wide, S.stack(flat[0], c, *flat[1:], axis=0)), shape=(-1, 6))
        for c in channel
    ]
    corners = [S.elemwise_sub(p, s) for p, s in zip((xs, ys), sizes)]
    return S.Group([classes + scores, S.stack(*corners, axis=2)])


def detectors():
    image = (2, 3, 18, 20)
    yield "gluon_ssd", gluon_ssd(False), image
    yield "gluon_ssd_forced", gluon_ssd(True), image
    yield "symbol_ssd", symbol_ssd(clip_anchors=False, threshold=0.3), image
    varied = {"force_suppress": True, "nms_topk": 25, "clip": False, "nms_threshold": 0.3}
    wide = {"variances": (0.2, 0.15, 0.3, 0.25), "threshold": 0.28}
    yield "symbol_ssd_varied", symbol_ssd(clip_anchors=True, **varied, **wide), image
    yield "center_net", center_net(), image


def cases():
    for name, block in gluon():
        shape = (2, 3, 16, 16) if name == "densenet" else (2, 3, 21, 18)
        yield name, block(x()), shape
    for name, symbol, shape in detectors():
        # Seed 4: no scores of gluon_ssd are near ties, which rounding may turn.
        make_operators.RNG = np.random.default_rng(4)
        yield name, symbol, shape


def drawn(name, value):
    """Values of a variable that keep numbers of a size through a network."""
    if name.endswith("gamma"):
        return np.where(RNG.random(value.shape) < 0.3, -1, 1) * RNG.uniform(0.6, 1.4, value.shape)
    if name.startswith("grid"):
        middle = RNG.uniform(0, 1, (*value.shape[:-1], 2, 2))
        boxes = np.concatenate([middle, RNG.uniform(0.2, 0.5, middle.shape)], -1)
        return boxes.reshape(value.shape)
    if name.endswith("weight"):
        return value * np.sqrt(6 / np.prod(value.shape[1:]))
    return value


if __name__ == "__main__":
    make_operators.drawn = drawn
    make_operators.write(Path(__file__).with_name("networks.npz"), cases())
