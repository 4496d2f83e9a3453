"""Writes networks.npz: whole networks that coremltools converted, and what the frameworks answer.

Run by hand where torch, tensorflow and coremltools are installed; the tests read the file. As in
make_programs.py, a case holds the bytes of the model and of its weight file, its inputs, and the
answers: of PyTorch in float64, of TensorFlow in float32.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import coremltools as ct
import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from make_programs import store
from torch import nn

IMAGE = (2, 3, 33, 41)


def normal(size):
    """A BatchNorm with moving statistics, and scales of both signs."""
    layer = nn.BatchNorm2d(size)
    layer.running_mean.uniform_(-0.5, 0.5)
    layer.running_var.uniform_(0.5, 2)
    layer.weight.data.uniform_(-1, 2)
    layer.bias.data.uniform_(-1, 1)
    return layer


class Residual(nn.Module):
    def __init__(self, taken, made, stride):
        super().__init__()
        self.a = nn.Conv2d(taken, made, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(made, made, 3, 1, 1)
        self.c = nn.Conv2d(taken, made, 1, stride)
        self.m, self.n = normal(made), normal(made)

    def forward(self, x):
        return F.relu(self.n(self.b(F.relu(self.m(self.a(x))))) + self.c(x))


def residual():
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), normal(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Residual(8, 12, 1),
        Residual(12, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class Excitation(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.a, self.b = nn.Conv2d(size, 4, 1), nn.Conv2d(4, size, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.b(F.relu(self.a(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    def __init__(self, taken, wide, made, kernel, stride):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(taken, wide, 1), normal(wide), nn.Hardswish(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide), normal(wide),
            Excitation(wide), nn.ReLU6(), nn.Conv2d(wide, made, 1), normal(made),
        )  # fmt: skip
        self.adds = stride == 1 and taken == made

    def forward(self, x):
        return x + self.inner(x) if self.adds else self.inner(x)


def mobile():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.Hardswish(), Inverted(8, 16, 8, 3, 1),
        Inverted(8, 24, 12, 5, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(12, 10),
    )  # fmt: skip


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norm, self.up = nn.GroupNorm(4, 16), nn.ConvTranspose2d(16, 8, 2, 2)
        self.c, self.d = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        a = F.leaky_relu(self.a(x), 0.1)
        b = F.silu(self.norm(self.b(a)))
        wide = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.d(F.elu(self.c(torch.cat([a, self.up(b)], 1)))) + wide[:, :4]


class Transformer(nn.Module):
    """Vision transformer on patches of 8 x 8 of images [2, 3, 16, 24]."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 7, width))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.m, self.n = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head, self.heads = nn.Linear(width, 10), heads

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(2, -1, -1), x], 1) + self.place
        split = self.qkv(self.m(x)).reshape(2, 7, 3, self.heads, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*split.unbind(0))
        x = x + self.out(y.transpose(1, 2).reshape(2, 7, 24))
        return self.head((x + self.down(F.gelu(self.up(self.n(x)))))[:, 0])


class Tagger(nn.Module):
    """Words [batch, length] to classes, both directions, two layers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.layers = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        return self.head(self.layers(self.words(x))[0])


PROGRAM = {"convert_to": "mlprogram", "skip_model_load": True}
FLOAT = {**PROGRAM, "compute_precision": ct.precision.FLOAT32}
HALF = {**PROGRAM, "compute_precision": ct.precision.FLOAT16}
LAYERS = {"convert_to": "neuralnetwork"}
TARGETS = {n: {"minimum_deployment_target": getattr(ct.target, f"iOS{n}")} for n in (15, 17, 18)}


def cases():
    """(name, module, input's shape, options of the conversion)."""
    yield "residual_program", residual(), IMAGE, {**FLOAT, **TARGETS[15]}
    yield "residual_layers", residual(), IMAGE, LAYERS
    yield "mobile_layers", mobile(), IMAGE, LAYERS
    yield "mobile_half", mobile(), IMAGE, {**HALF, **TARGETS[17]}
    yield "segmenter_program", Segmenter(), (2, 3, 20, 28), {**FLOAT, **TARGETS[17]}
    yield "transformer_program", Transformer(), (2, 3, 16, 24), {**FLOAT, **TARGETS[18]}
    yield "transformer_layers", Transformer(), (2, 3, 16, 24), LAYERS
    yield "tagger_program", Tagger(), None, {**FLOAT, **TARGETS[15]}
    yield "tagger_layers", Tagger(), None, LAYERS


def tensorflow_network():
    """A function of images, NHWC, with SAME at stride 2 and a resize by 9 / 5."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return tf.constant(0.3 * rng.standard_normal(shape).astype(np.float32))

    first, depth, point = drawn(3, 3, 3, 8), drawn(3, 3, 8, 1), drawn(1, 1, 8, 16)
    bias, up = drawn(8), drawn(3, 3, 6, 16)

    @tf.function(input_signature=[tf.TensorSpec((2, 33, 41, 3), tf.float32)])
    def network(x):
        y = tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, first, 2, "SAME"), bias))
        y = tf.nn.depthwise_conv2d(y, depth, (1, 2, 2, 1), "SAME")
        y = tf.nn.leaky_relu(tf.nn.conv2d(y, point, 1, "VALID"), 0.1)
        y = tf.nn.max_pool2d(y, 3, 2, "SAME") + tf.nn.avg_pool2d(y, 3, 2, "SAME")
        y = tf.image.resize(y, (9, 12), method="bilinear")
        y = tf.nn.conv2d_transpose(y, up, (2, 18, 24, 6), 2, "SAME")
        return tf.nn.softmax(tf.reduce_mean(y, (1, 2)))

    return network


def keep(found, name, model, x, answer):
    """Store a network of layers, which is one file, or a program."""
    if model.get_spec().WhichOneof("Type") == "mlProgram":
        store(found, name, model, [x], answer)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.mlmodel")
        model.save(str(path))
        found[f"{name}/model"] = np.frombuffer(path.read_bytes(), np.uint8)
    found |= {f"{name}/in:x0": x, f"{name}/out": answer}


def main(target):
    found = {}
    network = tensorflow_network()
    x = np.random.default_rng(3).standard_normal((2, 33, 41, 3)).astype(np.float32)
    for name, options in (("program", {**FLOAT, **TARGETS[17]}), ("layers", LAYERS)):
        function = [network.get_concrete_function()]
        model = ct.convert(function, source="tensorflow", **options)
        keep(found, f"tensorflow_{name}", model, x, network(x).numpy())
    for name, module, shape, options in cases():
        rng = np.random.default_rng(3)
        x = rng.standard_normal(shape).astype(np.float32) if shape else (
            rng.integers(0, 20, (2, 7)).astype(np.int32))  # fmt: skip
        given = torch.from_numpy(x)
        trace = torch.jit.trace(module.eval(), given)
        spec = ct.TensorType("x0", x.shape, dtype=x.dtype.type)
        model = ct.convert(trace, inputs=[spec], **options)
        answer = module.double()(given.double() if shape else given).detach().numpy()
        keep(found, name, model, x, answer)
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    torch.manual_seed(0)
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("networks.npz"))
