"""Writes programs.npz: ML programs that coremltools converted, and what PyTorch answers for them.

Run by hand where torch and coremltools are installed; the tests read the file. Each case holds the
bytes of the model and of its weight file, its inputs, and the answers of the converted module in
float64.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IMAGE = (2, 6, 9, 7)


class Of(nn.Module):
    """A function with some layers as a module."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def normal(size, kind=nn.BatchNorm2d):
    layer = kind(size)
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.5, 2)
    layer.weight.data.uniform_(0.5, 2)
    layer.bias.data.uniform_(-1, 1)
    return layer


def cases():
    """(name, module, shapes of inputs)."""
    yield (
        "convolutions",
        Of(
            lambda m, x: m.c(F.pad(m.b(m.a(x)), (1, 0, 2, 1))),
            a=nn.Conv2d(6, 4, (3, 2), stride=(2, 1), padding=(1, 0), groups=2),
            b=nn.Conv2d(4, 8, 3, padding="same", dilation=2),
            c=nn.Conv2d(8, 3, 2, bias=False),
        ),
        [IMAGE],
    )
    yield (
        "convolution_1d",
        Of(lambda m, x: m.a(x), a=nn.Conv1d(3, 4, 3, stride=2, padding=1)),
        [(2, 3, 10)],
    )
    yield "convolution_3d", Of(lambda m, x: m.a(x), a=nn.Conv3d(3, 4, (1, 3, 2))), [(2, 3, 4, 5, 6)]
    up = {"stride": (2, 3), "padding": (1, 0), "groups": 2}
    yield (
        "deconvolution",
        Of(lambda m, x: m.a(x), a=nn.ConvTranspose2d(6, 4, (3, 4), **up)),
        [IMAGE],
    )
    yield (
        "deconvolution_more",
        Of(lambda m, x: m.a(x), a=nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1)),
        [IMAGE],
    )
    yield "max_pool", Of(lambda m, x: F.max_pool2d(x, (3, 2), 2, (1, 0))), [IMAGE]
    yield "max_pool_ceil", Of(lambda m, x: F.max_pool2d(x, 2, 2, ceil_mode=True)), [IMAGE]
    for counted in (True, False):
        yield (
            f"average_pool_{counted}",
            Of(lambda m, x, k=counted: F.avg_pool2d(x, 3, 3, 1, count_include_pad=k)),
            [IMAGE],
        )
    for f in (F.relu, F.relu6, F.sigmoid, F.tanh, F.softplus, F.softsign, F.silu, F.elu):
        yield f"activation_{f.__name__}", Of(lambda m, x, f=f: f(x)), [(2, 3, 5)]
    yield "activation_leaky", Of(lambda m, x: F.leaky_relu(x, 0.3)), [(2, 3, 5)]
    yield "activation_gelu", Of(lambda m, x: F.gelu(x) + F.gelu(x, approximate="tanh")), [(2, 3, 5)]
    yield "activation_prelu", Of(lambda m, x: m.a(x), a=nn.PReLU(6)), [IMAGE]
    yield "activation_hard", Of(lambda m, x: F.hardsigmoid(x) + F.hardswish(x)), [(2, 3, 5)]
    yield "batch_norm", Of(lambda m, x: m.a(x), a=normal(6)), [IMAGE]
    yield "instance_norm", Of(lambda m, x: m.a(x), a=nn.InstanceNorm2d(6, affine=True)), [IMAGE]
    yield "layer_norm", Of(lambda m, x: m.a(x), a=nn.LayerNorm((5, 3))), [(2, 4, 5, 3)]
    yield "group_norm", Of(lambda m, x: m.a(x), a=nn.GroupNorm(2, 6)), [IMAGE]
    yield "normalize", Of(lambda m, x: F.normalize(x, dim=1)), [IMAGE]
    yield "response_norm", Of(lambda m, x: F.local_response_norm(x, 3, 0.2, 0.6, 1.5)), [IMAGE]
    yield "linear", Of(lambda m, x: m.a(x), a=nn.Linear(5, 4)), [(2, 3, 5)]
    yield (
        "products",
        Of(lambda m, x, y: x @ y.transpose(1, 2) + torch.einsum("bij,bkj->bik", x, y)),
        [(2, 3, 5), (2, 4, 5)],
    )
    yield "softmax", Of(lambda m, x: x.softmax(1) + x.log_softmax(-1)), [(2, 3, 5)]
    yield (
        "attention",
        Of(
            lambda m, x: m.o(
                F.scaled_dot_product_attention(
                    *(v.reshape(2, 5, 2, 3).transpose(1, 2) for v in m.i(x).chunk(3, -1))
                )
                .transpose(1, 2)
                .reshape(2, 5, 6)
            ),
            i=nn.Linear(6, 18),
            o=nn.Linear(6, 4),
        ),
        [(2, 5, 6)],
    )
    yield (
        "arithmetic",
        Of(
            lambda m, x, y: (
                (x - y) * x / (y.abs() + 1) + torch.maximum(x, y) ** 2 - x.clamp(-0.5, 1)
            )
        ),
        [(2, 3, 5), (3, 1)],
    )
    yield (
        "functions",
        Of(lambda m, x: x.exp() + (x.abs() + 1).log() + (x * x + 1).sqrt() + x.sin() - x.floor()),
        [(2, 3, 5)],
    )
    yield "inverse_root", Of(lambda m, x: (x * x + 0.5).rsqrt()), [(2, 3, 5)]
    yield "reciprocal", Of(lambda m, x: 1 / (x * x + 0.5)), [(2, 3, 5)]
    yield (
        "choice",
        Of(lambda m, x, y: torch.where((x > y) & (x.round() != 1), x, 2 * y)),
        [(2, 3, 5)] * 2,
    )
    yield (
        "reductions",
        Of(lambda m, x: x.sum((1, 2), keepdim=True) + x.mean(-1, keepdim=True) * x.amax(3, True)),
        [IMAGE],
    )
    yield "norms", Of(lambda m, x: x.norm(dim=1) + x.abs().sum(1) + x.logsumexp(1)), [IMAGE]
    yield "largest", Of(lambda m, x: x.topk(3, -1)[0]), [(2, 3, 5)]
    yield "position", Of(lambda m, x: x.argmax(1).to(torch.int32)), [(2, 3, 5)]
    yield (
        "movement",
        Of(
            lambda m, x: torch.cat([x.permute(0, 2, 3, 1).reshape(2, 7, -1), x.view(2, 7, 54)], 2)[
                :, 1:6:2, :-3
            ]
        ),
        [IMAGE],
    )
    yield "split", Of(lambda m, x: torch.stack([p * 2 for p in x.split([2, 4], 1)][:1], 1)), [IMAGE]
    yield "split_even", Of(lambda m, x: torch.sub(*x.chunk(2, 1))), [IMAGE]
    yield "padding", Of(lambda m, x: F.pad(x, (1, 2, 0, 3), value=0.5)), [IMAGE]
    yield "reflection", Of(lambda m, x: F.pad(x, (1, 2, 0, 3), mode="reflect")), [IMAGE]
    yield "replication", Of(lambda m, x: F.pad(x, (1, 2, 0, 3), mode="replicate")), [IMAGE]
    yield "shuffle", Of(lambda m, x: F.pixel_shuffle(x, 2)), [(2, 12, 3, 5)]
    yield "unshuffle", Of(lambda m, x: F.pixel_unshuffle(x, 2)), [(2, 3, 4, 6)]
    yield "flip", Of(lambda m, x: x.flip(1) + x.repeat(1, 1, 1)), [(2, 3, 5)]
    yield "tile", Of(lambda m, x: x.repeat(1, 2, 3)), [(2, 3, 5)]
    yield "squeeze", Of(lambda m, x: x[:, 0].unsqueeze(-1).squeeze(1)), [(2, 1, 1, 5)]
    yield "index", Of(lambda m, x: x[:, [2, 0, 1, 2]]), [(2, 3, 5)]
    for corners in (True, False):
        resized = {"mode": "bilinear", "align_corners": corners}
        yield (
            f"bilinear_{corners}",
            Of(lambda m, x, r=resized: F.interpolate(x, scale_factor=2, **r)),
            [IMAGE],
        )
        yield (
            f"bilinear_size_{corners}",
            Of(lambda m, x, r=resized: F.interpolate(x, (5, 11), **r)),
            [IMAGE],
        )
    yield "nearest", Of(lambda m, x: F.interpolate(x, scale_factor=(2, 3))), [IMAGE]
    yield "cumulative", Of(lambda m, x: x.cumsum(1)), [(2, 3, 5)]
    yield "triangle", Of(lambda m, x: x.tril() + 2 * x.triu()), [(3, 5)]


def network():
    torch.manual_seed(1)
    return Of(
        lambda m, x: m.l(F.max_pool2d(m.b(m.a(x)).relu(), 2).mean((2, 3))),
        a=nn.Conv2d(3, 16, 3, stride=2),
        b=normal(16),
        l=nn.Linear(16, 5),
    )


def traced(module, shapes):
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    module = module.eval()
    trace = torch.jit.trace(module, [torch.from_numpy(a) for a in arrays])
    answer = module.double()(*(torch.from_numpy(a).double() for a in arrays))
    return trace, arrays, answer.detach().numpy()


OPTIONS = {"convert_to": "mlprogram", "skip_model_load": True}
NEWER = {"unshuffle"}
"""Cases that need an operation of iOS 16."""
FLOAT = {**OPTIONS, "compute_precision": ct.precision.FLOAT32}


def store(found, name, model, inputs=(), answer=None):
    """Keep the bytes of a converted model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.mlpackage")
        model.save(str(path))
        inner = path / "Data" / "com.apple.CoreML"
        for key, file in (("model", "model.mlmodel"), ("weights", "weights/weight.bin")):
            if (inner / file).exists():
                found[f"{name}/{key}"] = np.frombuffer((inner / file).read_bytes(), np.uint8)
    for i, array in enumerate(inputs):
        found[f"{name}/in:x{i}"] = array
    if answer is not None:
        found[f"{name}/out"] = answer


def main(target):
    found = {}
    for name, module, shapes in cases():
        torch.manual_seed(0)
        try:
            trace, arrays, answer = traced(module, shapes)
            given = [ct.TensorType(f"x{i}", s) for i, s in enumerate(shapes)]
            newer = {"minimum_deployment_target": ct.target.iOS16} if name in NEWER else {}
            model = ct.convert(trace, inputs=given, **FLOAT, **newer)
        except Exception as error:  # What coremltools cannot convert is no test of ours.
            print("left out:", name, str(error).splitlines()[:1])
            continue
        store(found, name, model, arrays, answer)
    trace, arrays, answer = traced(network(), [(2, 3, 12, 11)])
    fixed = [ct.TensorType("x0", (2, 3, 12, 11))]
    half = ct.convert(trace, inputs=fixed, **OPTIONS, compute_precision=ct.precision.FLOAT16)
    store(found, "half", half, arrays, answer)
    sizes = (ct.RangeDim(1, 9, default=2), 3, 12, 11)
    store(found, "open_batch", ct.convert(trace, inputs=[ct.TensorType("x0", sizes)], **FLOAT),
          arrays, answer)  # fmt: skip
    image = ct.ImageType("x0", (1, 3, 12, 11), scale=0.5, bias=[1, 2, 4], color_layout="BGR")
    labels = ct.ClassifierConfig(["cat", "dog", "owl", "emu", "yak"])
    single, _, _ = traced(network(), [(1, 3, 12, 11)])
    model = ct.convert(single, inputs=[image], classifier_config=labels, **FLOAT)
    pixels = np.random.default_rng(4).integers(0, 256, (1, 3, 12, 11)).astype(np.float32)
    scaled = 0.5 * pixels + np.reshape([1, 2, 4], (3, 1, 1))
    answer = network().eval().double()(torch.from_numpy(scaled)).detach().numpy()
    store(found, "classifier", model, [pixels], answer)
    newer = {**FLOAT, "minimum_deployment_target": ct.target.iOS16}
    plain = ct.convert(trace, inputs=fixed, **newer)
    store(found, "newer", plain, arrays)
    small = {"weight_threshold": 8}
    for name, config, way in (
        (
            "linear",
            cto.OpLinearQuantizerConfig(mode="linear", **small),
            cto.linear_quantize_weights,
        ),
        ("table", cto.OpPalettizerConfig(nbits=2, mode="uniform", **small), cto.palettize_weights),
        ("pruned", cto.OpMagnitudePrunerConfig(target_sparsity=0.5, **small), cto.prune_weights),
    ):
        model = way(plain, config=cto.OptimizationConfig(global_config=config))
        store(found, f"{name}_compressed", model, arrays)
        store(found, f"{name}_plain", cto.decompress_weights(model))
    np.savez_compressed(target, **found)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("programs.npz"))
