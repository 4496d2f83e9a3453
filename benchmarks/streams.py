"""A wake-word network on a stream, in bytes, one frame after the other: Verax beside LiteRT.

Run: python -m benchmarks.streams [turns]. The file is made here, of the shape that detectors of
spoken words have: a convolution over five frames, four depthwise convolutions over 5 to 21 frames
of memory with 1x1 convolutions behind them, and a classifier. Both take a frame and give a
probability in one call from Python; turns alternate, and the fastest of each counts. All bits are
compared with those of the reference kernels of LiteRT first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model

import verax

FRAMES, CHANNELS, DEPTHS = 3, 40, (5, 9, 13, 21)
CALLS = 20
"""A turn."""


class Net:
    """Tensors and operators of the network, and what it remembers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[T] = []
        self.ops: list[Op] = [Op("CALL_ONCE", [], [], {"init_subgraph_index": 1})]
        self.remembered: list[T] = []

    def tensor(self, t: T) -> int:
        self.tensors.append(t)
        return len(self.tensors) - 1

    def image(self, frames: int, channels: int, scale: float, zero: int) -> int:
        return self.tensor(T((1, frames, 1, channels), "int8", None, [scale], [zero]))

    def numbers(self, *values: int) -> int:
        return self.tensor(const(np.array(values, np.int32)))

    def joined(self, x: int, frames: int, past: int, channels: int, scale: float, zero: int) -> int:
        """`past` frames of memory and x; the last ones are remembered."""
        name = f"past{len(self.remembered)}"
        start = np.full((1, past, 1, channels), zero, np.int8)
        self.remembered.append(T(start.shape, "int8", start, [scale], [zero], name=name))
        handle = self.tensor(T((), "a resource", name=name))
        self.ops.append(_handle(name, handle))
        read = self.image(past, channels, scale, zero)
        self.ops.append(Op("READ_VARIABLE", [handle], [read]))
        both = self.image(past + frames, channels, scale, zero)
        self.ops.append(Op("CONCATENATION", [read, x], [both], {"axis": 1}))
        kept = self.image(past, channels, scale, zero)
        window = [self.numbers(0, frames, 0, 0), self.numbers(1, past, 1, channels)]
        self.ops.append(Op("SLICE", [both, *window], [kept]))
        self.ops.append(Op("ASSIGN_VARIABLE", [handle, kept], []))
        return both

    def weighted(self, kind: str, x: int, y: T, shape: tuple[int, ...], axis: int, spread: float,
                 scale: float, **options: object) -> int:  # fmt: skip
        """A convolution with random weights and biases, scales per filter. scale: of x."""
        count = shape[axis]
        scales = self.rng.uniform(0.5, 2, count) * spread
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        w = self.tensor(T(shape, "int8", weights, _floats(scales), [0] * count, axis=axis))
        bias = self.rng.integers(-500, 500, count).astype(np.int32)
        b = self.tensor(T((count,), "int32", bias, _floats(scales * scale), [0] * count))
        found = self.tensor(y)
        self.ops.append(Op(kind, [x, w, b], [found], {"padding": "VALID", **options}, 3))
        return found


def _floats(values: np.ndarray) -> list[float]:
    return [float(v) for v in values.astype(np.float32)]


def _handle(name: str, to: int) -> Op:
    return Op("VAR_HANDLE", [], [to], {"container": "", "shared_name": name})


def wake_word() -> bytes:
    """The file."""
    net = Net(5)
    x = net.tensor(T((1, FRAMES, 1, CHANNELS), "int8", None, [0.1], [-128], name="features"))
    both = net.joined(x, FRAMES, 2, CHANNELS, 0.1, -128)
    steps = {"stride_w": 1, "stride_h": 1}
    relu = {"fused_activation_function": "RELU"}
    y = T((1, 1, 1, 32), "int8", None, [0.05], [-128])
    value = net.weighted("CONV_2D", both, y, (32, 5, 1, CHANNELS), 0, 1e-3, 0.1, **steps, **relu)
    channels = 32
    for depth in DEPTHS:
        both = net.joined(value, 1, depth - 1, channels, 0.05, -128)
        y = T((1, 1, 1, channels), "int8", None, [0.06], [-5])
        value = net.weighted("DEPTHWISE_CONV_2D", both, y, (1, depth, 1, channels), 3, 4e-3, 0.05,
                             depth_multiplier=1, **steps)  # fmt: skip
        y = T((1, 1, 1, 64), "int8", None, [0.05], [-128])
        value = net.weighted("CONV_2D", value, y, (64, 1, 1, channels), 0, 2e-3, 0.06,
                             **steps, **relu)  # fmt: skip
        channels = 64
    both = net.joined(value, 1, 4, 64, 0.05, -128)
    flat = net.tensor(T((1, 320), "int8", None, [0.05], [-128]))
    net.ops.append(Op("RESHAPE", [both, net.numbers(1, 320)], [flat]))
    w = net.tensor(
        T((1, 320), "int8", net.rng.integers(-127, 128, (1, 320)).astype(np.int8), [4e-3], [0])
    )
    b = net.tensor(T((1,), "int32", np.array([12], np.int32), [2e-4], [0]))
    logit = net.tensor(T((1, 1), "int8", None, [0.15], [-30]))
    net.ops.append(Op("FULLY_CONNECTED", [flat, w, b], [logit], {}, 4))
    squashed = net.tensor(T((1, 1), "int8", None, [1 / 256], [-128]))
    net.ops.append(Op("LOGISTIC", [logit], [squashed]))
    found = net.tensor(T((1, 1), "uint8", None, [1 / 256], [0], name="probability"))
    net.ops.append(Op("QUANTIZE", [squashed], [found]))
    first, begin = [], []
    for start in net.remembered:
        place = len(first)
        first += [T((), "a resource", name=start.name), start]
        begin += [_handle(start.name or "", place), Op("ASSIGN_VARIABLE", [place, place + 1], [])]
    return model(net.tensors, net.ops, [x], [found], more=[(first, begin, [], [])])


def litert(path: Path, kernels: OpResolverType) -> Callable[[np.ndarray], np.ndarray]:
    """A frame to a probability, by LiteRT on one thread."""
    net = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kernels)
    net.allocate_tensors()
    x, y = net.get_input_details()[0]["index"], net.get_output_details()[0]["index"]

    def run(frame: np.ndarray) -> np.ndarray:
        net.set_tensor(x, frame)
        net.invoke()
        return np.asarray(net.get_tensor(y))

    return run


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(6)
    shape = (1, FRAMES, 1, CHANNELS)
    frames = [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "wake_word.tflite")
        path.write_bytes(wake_word())
        exe = verax.compile(path, threads=1)
        meant = litert(path, OpResolverType.BUILTIN_REF)
        runs = {
            "Verax": lambda frame: exe.run({"features": frame})["probability"],
            "LiteRT with XNNPACK": litert(path, OpResolverType.AUTO),
            "LiteRT without XNNPACK": litert(
                path, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            ),
        }
        for frame in frames:
            assert runs["Verax"](frame) == meant(frame), "not LiteRT's reference"
        best = dict.fromkeys(runs, float("inf"))
        for turn in range(turns):
            frame = frames[turn % len(frames)]
            for name, run in runs.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    run(frame)
                best[name] = min(best[name], (time.perf_counter() - start) / CALLS)
    for name, seconds in best.items():
        print(f"{name}: {seconds * 1e6:.2f} microseconds, {seconds / best['Verax']:.2f} of Verax's")


if __name__ == "__main__":
    main()
