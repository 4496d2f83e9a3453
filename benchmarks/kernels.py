"""Single layers against other libraries, one thread, interleaved: `python benchmarks/kernels.py`.

Each layer of ResNet-50, ResNet-18 and MobileNetV2 (batch 1, float32, bias) runs in turn in Verax,
in oneDNN (through PyTorch, weights and activations in oneDNN's own layout), and with --runtimes
also as a single-operator model in ONNX Runtime and OpenVINO, whose times include the reordering
of row-major inputs and outputs. Between calls the second-level cache is flushed, as the rest of a
network does it. Reported: GFLOP/s of the tenth percentile of times, and the machine's peak of
multiply-adds measured in the same round.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from verax.compiler.kernels.convolution.emit import default_schedule, emit_conv, pack_conv_weights
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import blocked_strides, planar_strides
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.runtime.engine import LoadedObject, load_object

Run = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution on a square image. count: how often the network has it."""

    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    depthwise: bool = False
    count: int = 1

    @property
    def pad(self) -> int:
        return self.kernel // 2

    @property
    def groups(self) -> int:
        return self.channels if self.depthwise else 1

    @property
    def output(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        per_output = 2 * self.filters * (self.channels // self.groups) * self.kernel**2
        return per_output * self.output**2

    def __str__(self) -> str:
        kind = "dw" if self.depthwise else ""
        step = f"/{self.stride}" if self.stride > 1 else ""
        shape = f"{self.channels}->{self.filters} at {self.size}"
        return f"{self.kernel}x{self.kernel}{kind}{step} {shape}"


def _resnet50() -> list[Layer]:
    layers = [Layer(3, 64, 224, 7, 2)]
    for stage, (width, size, blocks) in enumerate(
        [(64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3)]
    ):
        first, before, wide = min(stage, 1), (64, 256, 512, 1024)[stage], 4 * width
        large = size * 2 if first else size
        layers += [
            Layer(before, width, large, 1), Layer(width, width, large, 3, 1 + first),
            Layer(before, wide, large, 1, 1 + first), Layer(width, wide, size, 1, count=blocks),
            Layer(wide, width, size, 1, count=blocks - 1),
            Layer(width, width, size, 3, count=blocks - 1),
        ]  # fmt: skip
    return layers


def _resnet18() -> list[Layer]:
    layers = [Layer(3, 64, 224, 7, 2), Layer(64, 64, 56, 3, count=4)]
    for width, size in ((128, 28), (256, 14), (512, 7)):
        layers += [
            Layer(width // 2, width, 2 * size, 3, 2), Layer(width // 2, width, 2 * size, 1, 2),
            Layer(width, width, size, 3, count=3),
        ]  # fmt: skip
    return layers


def _mobilenetv2() -> list[Layer]:
    layers = [Layer(3, 32, 224, 3, 2), Layer(32, 32, 112, 3, depthwise=True), Layer(32, 16, 112, 1)]
    before, size = 16, 112
    blocks = (
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, width, repeat, stride in blocks:
        for i in range(repeat):
            wide, step = before * expand, stride if i == 0 else 1
            layers += [Layer(before, wide, size, 1), Layer(wide, wide, size, 3, step, True)]
            size, before = size // step, width
            layers.append(Layer(wide, width, size, 1))
    return [*dict.fromkeys(layers), Layer(320, 1280, 7, 1)]


NETWORKS = {"resnet50": _resnet50, "resnet18": _resnet18, "mobilenetv2": _mobilenetv2}


class Native:
    """A loaded kernel with its argument table."""

    def __init__(self, module: ModuleBuilder, kernel: Kernel, arrays: list[tuple[np.ndarray, int]]):
        self._library: LoadedObject = load_object(object_code(module))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._call = kind(self._library.address(kernel.name))
        self._arrays = arrays
        self._table = np.array([a.ctypes.data + 4 * at for a, at in arrays], np.uint64)
        self._items = kernel.items

    def __call__(self) -> None:
        self._call(self._table.ctypes.data, 0, self._items)


def aligned(count: int) -> np.ndarray:
    """Zeros on a cache line."""
    raw = np.zeros(count + 32, np.float32)
    first = -raw.ctypes.data % 64 // 4
    return raw[first : first + count]


def verax(layer: Layer, target: Target) -> Run:
    p, size, out = layer.pad, (1, layer.size, layer.size), (1, layer.output, layer.output)
    border = ((0, 0), (p, p), (p, p))
    x = (planar_strides if layer.channels < 8 else blocked_strides)(layer.channels, size, border)
    y = blocked_strides(layer.filters, out)
    k = layer.kernel
    spec = ConvSpec(
        1, layer.channels, layer.filters, out, (1, k, k), x, y, layer.groups,
        (1, layer.stride, layer.stride), pads=(0, p, p), types=FLOAT32,
    )  # fmt: skip
    schedule = default_schedule(spec, target)
    rng = np.random.default_rng(0)
    shape = (layer.filters, layer.channels // layer.groups, 1, k, k)
    packed = pack_conv_weights(rng.standard_normal(shape, np.float32), spec, schedule)
    weights, source = aligned(packed.size), aligned(x.batch)
    weights[:], source[:] = packed, rng.standard_normal(source.size, np.float32)
    module = ModuleBuilder("layer", target)
    kernel = emit_conv(module, spec, schedule)
    bias = aligned(-(-layer.filters // 16) * 16)
    origin = p * (x.row + x.pixel)
    return Native(
        module, kernel, [(source, origin), (weights, 0), (bias, 0), (aligned(y.batch), 0)]
    )


def onednn(layer: Layer) -> Run:
    import torch

    torch.set_num_threads(1)
    k, step, pad = layer.kernel, [layer.stride] * 2, [layer.pad] * 2
    x = torch.randn(1, layer.channels, layer.size, layer.size).to_mkldnn()
    if layer.channels >= 16:  # what a convolution gives is in oneDNN's own layout
        identity = torch.eye(layer.channels).reshape(layer.channels, layer.channels, 1, 1)
        x = torch.conv2d(x, identity.to_mkldnn(), torch.zeros(layer.channels).to_mkldnn())
    w = torch.randn(layer.filters, layer.channels // layer.groups, k, k).to_mkldnn()
    shape = [1, layer.channels, layer.size, layer.size]
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(w, pad, step, [1, 1], layer.groups, shape)
    bias = torch.zeros(layer.filters).to_mkldnn()

    def call() -> object:
        with torch.no_grad():
            return torch.conv2d(x, packed, bias, step, pad, [1, 1], layer.groups)

    call()
    return call


def _single_operator(layer: Layer) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    k, rng = layer.kernel, np.random.default_rng(0)
    shape = (layer.filters, layer.channels // layer.groups, k, k)
    w = numpy_helper.from_array(rng.standard_normal(shape, np.float32), "w")
    b = numpy_helper.from_array(np.zeros(layer.filters, np.float32), "b")
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], strides=[layer.stride] * 2, pads=[layer.pad] * 4,
        group=layer.groups,
    )  # fmt: skip
    ends = [("x", layer.channels, layer.size), ("y", layer.filters, layer.output)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, s, s]) for n, c, s in ends)
    graph = helper.make_graph([node], "layer", [x], [y], [w, b])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def onnxruntime(layer: Layer) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        _single_operator(layer), options, providers=["CPUExecutionProvider"]
    )
    x = np.random.default_rng(0).standard_normal(
        (1, layer.channels, layer.size, layer.size), np.float32
    )
    return lambda: session.run(None, {"x": x})


def openvino(layer: Layer) -> Run:
    import openvino as ov

    core = ov.Core()
    hints = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = core.compile_model(core.read_model(_single_operator(layer)), "CPU", hints)
    request = model.create_infer_request()
    x = np.random.default_rng(0).standard_normal(
        (1, layer.channels, layer.size, layer.size), np.float32
    )
    return lambda: request.infer([x])


def peak(target: Target) -> tuple[Run, int]:
    """A loop of independent multiply-adds, and its operations."""
    chains, trips = max(4, target.registers // target.physical - 4), 50_000
    module = ModuleBuilder("peak", target)
    f = module.kernel(("peak",), 1)
    x = f.broadcast(f.args[0])
    with f.loop(trips, carry=[f.constant(float(i)) for i in range(chains)]) as loop:
        loop.next([f.fma(v, x, x) for v in loop.values])
    total = loop.results[0]
    for value in loop.results[1:]:
        total = f.b.fadd(total, value)
    f.store(total, f.args[0])
    return Native(module, f.finish(1), [(np.full(16, 0.5, np.float32), 0)]), 32 * chains * trips


def measure(runs: dict[str, Run], seconds: float) -> dict[str, float]:
    """Tenth percentile of seconds per call; engines take turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    flush = np.zeros(1 << 19, np.float32)  # 2 MB: no layer finds its weights in the L2 cache
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(times))]) < 5:
        for name, run in runs.items():
            flush += 1  # the rest of a network
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: sorted(t)[len(t) // 10] for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=[*NETWORKS, "all"], default="all")
    parser.add_argument("--target", default="host", help="host, avx512 or avx2")
    parser.add_argument("--seconds", type=float, default=1.0, help="per layer")
    parser.add_argument("--runtimes", action="store_true", help="also ONNX Runtime and OpenVINO")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    target = Target.named(arguments.target)
    names = list(NETWORKS) if arguments.network == "all" else [arguments.network]
    others = {"oneDNN": onednn}
    if arguments.runtimes:
        others |= {"ONNX Runtime": onnxruntime, "OpenVINO": openvino}
    rows = []
    for name in names:
        print(f"\n{name}: GFLOP/s, one thread, {target.name}")
        print(f"{'layer':28}{'peak':>7}{'verax':>7}" + "".join(f"{o:>14}" for o in others))
        for layer in NETWORKS[name]():
            top, operations = peak(target)
            runs = {"peak": top, "verax": verax(layer, target)}
            runs |= {other: make(layer) for other, make in others.items()}
            found = measure(runs, arguments.seconds)
            rates = {
                k: (operations if k == "peak" else layer.flops) / s / 1e9 for k, s in found.items()
            }
            texts = "".join(f"{rates[o]:14.0f}" for o in others)
            print(f"{layer!s:28}{rates['peak']:7.0f}{rates['verax']:7.0f}{texts}", flush=True)
            rows.append({"network": name, "layer": str(layer), "count": layer.count, **rates})
    wins = sum(all(r["verax"] >= r[o] for o in others) for r in rows)
    print(f"\nverax is fastest on {wins} of {len(rows)} layers")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
