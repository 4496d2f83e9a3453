"""Errors of sums, means and normalizations: ours beside PyTorch's, ONNX Runtime's and OpenVINO's.

Run: python -m benchmarks.reductions_accuracy [--write docs/reductions_accuracy.md] [operator ...].
Each network is one operator with scale 1 and bias 0, of float32, on data of several kinds; the
error is the difference to the float64 meaning over all outputs of `DRAWS` inputs: the largest in
units of u = 2^-24 times the largest output, of reductions the root mean square in units of u times
that of the outputs. Levels O0 and O3 must agree in every bit. An error of one rounding or less is
all that a float32 can be asked for: the ratio is that of our error, and of theirs, each taken for 1
at least. Exit code 1 if it is above 2 somewhere. A peer that lacks the operator is left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import torch
from benchmarks.provenance import stamped
from benchmarks.rows import table
from onnx import TensorProto, helper, numpy_helper

import verax

F = torch.nn.functional
U = 2.0**-24
DRAWS = 3
ALLOWED = 2.0
DATA: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "40 ± 0.1": lambda rng, shape: 40 + 0.1 * rng.standard_normal(shape),
    "1000 ± 1": lambda rng, shape: 1000 + rng.standard_normal(shape),
    "wide": lambda rng, shape: rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape)),
}
"""Kinds of data; the last is over some six decades."""
PEERS = ("torch", "ONNX Runtime", "OpenVINO")


@dataclass(frozen=True)
class Network:
    """An operator of ONNX on an input of `shape`; axes: an input that holds them. In PyTorch, the
    same by `torch`."""

    kind: str
    shape: tuple[int, ...]
    torch: Callable[[torch.Tensor], torch.Tensor] | None = None
    parameters: tuple[int, ...] = ()
    count: int = 0
    axes: tuple[int, ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        over = f" over {list(self.axes)}" if self.axes else ""
        return f"{self.kind} {list(self.shape)}{over}"

    @property
    def reduces(self) -> bool:
        """Whether outputs are few sums of one distribution, rather than elements of all sizes."""
        return not self.kind.endswith("Normalization") and "oftmax" not in self.kind

    def save(self, path: Path) -> None:
        """As an ONNX file."""
        scale, bias = np.ones(self.parameters, np.float32), np.zeros(self.parameters, np.float32)
        given = [numpy_helper.from_array(v, n) for v, n in zip((scale, bias), "sb")][: self.count]
        if self.axes:
            given.append(numpy_helper.from_array(np.array(self.axes, np.int64), "axes"))
        node = helper.make_node(
            self.kind, ["x", *(g.name for g in given)], ["y"], **dict(self.attributes)
        )
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], "net", [x], [y], given)
        version = 23 if self.kind == "RMSNormalization" else 18 if "Group" not in self.kind else 21
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        model.ir_version = 10
        onnx.save(model, path)


def networks() -> Iterator[Network]:
    """All reductions and normalizations of floats, over short and long axes."""
    for shape, axes in (
        ((64, 300), (1,)),
        ((16, 5000), (1,)),
        ((5000, 48), (0,)),
        ((3, 40, 33, 31), (0, 2, 3)),
        ((3, 1 << 20), (1,)),
    ):
        for kind, call in (
            ("ReduceSum", lambda x, a=axes: x.sum(a)),
            ("ReduceMean", lambda x, a=axes: x.mean(a)),
            ("ReduceL1", lambda x, a=axes: torch.linalg.vector_norm(x, 1, a)),
            ("ReduceL2", lambda x, a=axes: torch.linalg.vector_norm(x, 2, a)),
            ("ReduceSumSquare", lambda x, a=axes: x.square().sum(a)),
            ("ReduceLogSumExp", lambda x, a=axes: torch.logsumexp(x, a)),
        ):
            yield Network(kind, shape, call, axes=axes, attributes=(("keepdims", 0),))
    for shape in ((2, 24, 7, 9), (1, 3, 1024, 1024)):
        yield Network("GlobalAveragePool", shape, lambda x: x.mean((2, 3), keepdim=True))
        yield Network(
            "GlobalLpPool", shape, lambda x: torch.linalg.vector_norm(x, 2, (2, 3), keepdim=True)
        )
    yield Network(
        "AveragePool", (1, 3, 128, 96), lambda x: F.avg_pool2d(x, 32, 16),
        attributes=(("kernel_shape", (32, 32)), ("strides", (16, 16))),
    )  # fmt: skip
    for shape, first in (((64, 96), 1), ((32, 768), 1), ((8, 5000), 1), ((1, 8, 256, 256), 1)):
        last = shape[first:]
        call = lambda x, n=last: F.layer_norm(x, n, eps=1e-5)  # noqa: E731
        yield Network("LayerNormalization", shape, call, last, 2, (), (("axis", first),))
        call = lambda x, n=last: F.rms_norm(x, n, eps=1e-5)  # noqa: E731
        yield Network("RMSNormalization", shape, call, last, 1, (), (("axis", first),))
    for shape in ((2, 32, 14, 13), (1, 8, 64, 64), (1, 3, 1024, 1024)):
        yield Network(
            "InstanceNormalization", shape, lambda x: F.instance_norm(x, eps=1e-5), shape[1:2], 2
        )
        yield Network("MeanVarianceNormalization", shape, None, attributes=(("axes", (2, 3)),))
    for shape in ((2, 32, 14, 13), (1, 8, 256, 256)):
        yield Network(
            "GroupNormalization", shape, lambda x: F.group_norm(x, 2, eps=1e-5), shape[1:2], 2,
            attributes=(("num_groups", 2),),
        )  # fmt: skip
    for p in (1, 2):
        call = lambda x, p=p: F.normalize(x, p, 1, 0.0)  # noqa: E731
        yield Network("LpNormalization", (8, 5000), call, attributes=(("axis", 1), ("p", p)))
    yield Network(
        "LRN", (2, 24, 7, 9), lambda x: F.local_response_norm(x, 5, 1e-1, 0.75, 1.0),
        attributes=(("size", 5), ("alpha", 1e-1), ("beta", 0.75), ("bias", 1.0)),
    )  # fmt: skip
    for shape in ((32, 300), (4, 100_000)):
        yield Network("Softmax", shape, lambda x: torch.softmax(x, 1))
        yield Network("LogSoftmax", shape, lambda x: torch.log_softmax(x, 1))


@dataclass
class Row:
    """Errors in units of one rounding; None for a peer that does not run it."""

    name: str
    data: str
    ours: float
    peers: tuple[float | None, ...]

    @property
    def ratio(self) -> float:
        """Our error by that of the most exact of them, neither below one rounding."""
        best = min((e for e in self.peers if e is not None), default=np.inf)
        return max(1.0, self.ours) / max(1.0, best)

    def cells(self) -> list[str]:
        peers = ["–" if e is None else f"{e:.3g}" for e in self.peers]
        return [self.name, self.data, f"{self.ours:.3g}", *peers, f"{self.ratio:.2f}"]


Run = Callable[[np.ndarray], np.ndarray]


def runs(network: Network, path: Path) -> list[Run | None]:
    """How each peer runs it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found: list[Run | None] = [None]
    if network.torch is not None:
        call = network.torch
        found = [lambda x: call(torch.from_numpy(x)).numpy()]
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found.append(lambda x: session.run(None, {"x": x})[0])
    except Exception:  # no kernel for it
        found.append(None)
    try:
        hint = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(str(path), "CPU", hint)
        found.append(lambda x: compiled({"x": x})[compiled.outputs[0]].copy())
    except Exception:  # no conversion for it
        found.append(None)
    return found


def measure(network: Network) -> Iterator[Row]:
    """A row for every kind of data."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        network.save(path)
        model = verax.load(path)
        low, high = (verax.compile(model, opt_level=level) for level in (0, 3))
        peers = runs(network, path)
        for data, draw in DATA.items():
            rng = np.random.default_rng([*network.shape, len(network.kind)])
            wants, gots = [], []
            for _ in range(DRAWS):
                x = draw(rng, network.shape).astype(np.float32)
                (want,) = verax.reference(model, {"x": x}).values()
                (ours,) = low.run({"x": x}).values()
                (other,) = high.run({"x": x}).values()
                if ours.tobytes() != other.tobytes():
                    raise SystemExit(f"{network.name}: O0 and O3 differ")
                wants.append(np.ravel(want))
                gots.append([ours, *(None if run is None else run(x) for run in peers)])
            ours_all, *theirs = (
                _error(column, np.array(wants), network.reduces) for column in zip(*gots)
            )
            assert ours_all is not None
            yield Row(network.name, data, ours_all, tuple(theirs))


def _error(got: Sequence[np.ndarray | None], want: np.ndarray, reduces: bool) -> float | None:
    """In roundings; None where there is no result."""
    if any(value is None for value in got):
        return None
    values = np.array([np.ravel(value) for value in got], np.float64)  # type: ignore[arg-type]
    if reduces:
        return float(np.sqrt(np.mean((values - want) ** 2) / np.mean(want**2))) / U
    return float(np.abs(values - want).max() / np.abs(want).max()) / U


def page(rows: Sequence[Row]) -> str:
    """The page that --write writes."""
    worst = max(r.ratio for r in rows)
    better = sum(r.ratio < 1 for r in rows)
    versions = f"PyTorch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, OpenVINO "
    versions += openvino.__version__.partition("-")[0]
    head = ["operator", "data", "Verax", *PEERS, "ratio"]
    return "\n".join(
        [
            "# Errors of sums and normalizations",
            "",
            "Made by `python -m benchmarks.reductions_accuracy`: errors against the float64 "
            f"meaning over all outputs of {DRAWS} inputs, in roundings (u = 2^-24): of reductions "
            "and pools the root mean square, by that of the outputs; of normalizations, Softmax "
            "and its logarithm the largest, by the largest output. Levels O0 and O3 have the same "
            "bits. The ratio is our error by that of the most exact peer, where one rounding or "
            "less counts as one. Sums of normal and of wide data cancel, so that an error may be "
            "many roundings of a small sum.",
            "",
            "Sums of float32 are taken in blocks of 1024 elements, 32 partial results each, and "
            "blocks are added by two-sums; normalizations subtract a number near the mean, and "
            "what that lacks when they scale; what follows from sums is computed in float64 "
            "(`numerics/reductions.py`, `ops/sums/moments.py`).",
            "",
            f"**{len(rows)} rows; the largest ratio is {worst:.2f}; more exact than every peer "
            f"in {better}.**",
            "",
            f"{versions}.",
            "",
            *table(head, rows),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("kinds", nargs="*", help="operators; all when none is named")
    parser.add_argument("--write", type=Path, help="the page to write")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for network in networks():
        if asked.kinds and network.kind not in asked.kinds:
            continue
        for row in measure(network):
            rows.append(row)
            print(" | ".join(row.cells()), flush=True)
    if asked.write is not None:
        asked.write.write_text(stamped(page(rows)))
    return int(any(row.ratio > ALLOWED for row in rows))


if __name__ == "__main__":
    sys.exit(main())
