"""Every operator's error model against ONNX Runtime and PyTorch: zero false alarms.

Where ONNX Runtime answers differently from the meaning for a reason that is not rounding, the case
is listed with that reason.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from verax.base.errors import UnsupportedError
from verax.base.process.processes import SubjectError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.ties import UNDEFINED
from verax.judge.protocol import Capabilities
from verax.ops.images.detection import RoiAlign
from verax.records.verdict import Kind, Verdict
from verax.runners.functions import FunctionRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnxruntime.set_default_logger_severity(4)
NOT_IMPLEMENTED = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
REFUSALS = (
    NOT_IMPLEMENTED,
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
)
GOOD = (Kind.identical, Kind.rounding)

KNOWN = {
    "AffineGrid": "3-D with align_corners: ONNX's own expected outputs contradict it",
    "Cast": "out of range, which ONNX leaves undefined: it wraps",
    "MaxPool": "NaN does not win",
    "MaxUnpool": "output_shape: it counts indices in the default shape",
    "Pow": "integer overflow is undefined",
    "QuantizeLinear": "a precision attribute that it ignores",
    "ReduceLogSumExp": "integers, truncated after each step",
    "Resize": "align_corners by scales, and negative axes with an aspect policy",
    "RoiAlign": "written as opset 10 it has no half-pixel shift",
}
"""Operators some of whose cases ONNX Runtime answers differently, with the reason."""


def graph_of(case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    b, names, arrays = Builder("case"), [], {}
    for i, array in enumerate(case.inputs):
        if array is None:
            names.append(None)
        elif i in case.constant:
            names.append(b.constant(np.array(array), f"c{i}"))
        else:
            arrays[f"x{i}"] = np.asarray(array)
            names.append(b.input(f"x{i}", TensorType.of(arrays[f"x{i}"])))
    outputs = [f"y{k}" for k in range(case.op.output_count)]
    return b.graph(b.add_all(case.op, names, outputs)), arrays


def float32_cases(name: str) -> Iterator[Case]:
    """Without float64: ONNX keeps attributes in float32, which shows there."""
    for case in REGISTRY[name].cases(np.random.default_rng(0)):
        if not any(a is not None and a.dtype == np.float64 for a in case.inputs):
            yield case


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - set(KNOWN)))
def test_onnx_runtime_is_honest_on_every_case(name: str) -> None:
    tried = 0
    for case, verdict in onnx_runtime_verdicts(name):
        divided_by_zero = verdict.reasons[0].endswith("a NaN proves nothing")
        assert verdict.kind in GOOD or divided_by_zero, (case.label, str(case.op), verdict.reasons)
        tried += 1
    assert tried or REGISTRY[name].exact or name in UNSEEN, "no foreign runtime proves it"


UNSEEN = {"MultiBoxDetection": "MXNet's own; its file is judged as a whole network"}
"""Operators that round and that ONNX Runtime does not know, with the reason."""


def onnx_runtime_verdicts(name: str) -> Iterator[tuple[Case, Verdict]]:
    runner = OnnxRuntimeRunner(writer=to_bytes, threads=1, isolated=False)
    for case in float32_cases(name):
        graph, arrays = graph_of(case)
        try:
            answer = runner.run(graph, arrays)
        except UnsupportedError:
            continue
        except REFUSALS:
            continue  # it lacks the element type or the form
        except RuntimeError:
            continue  # it cannot hand bfloat16 over
        yield case, check(graph, Recorded(answer), arrays)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_where_onnx_runtime_means_something_else_it_is_plain(name: str) -> None:
    """Its answers are rounding, or far off; most of them are rounding."""
    good = []
    for case, verdict in onnx_runtime_verdicts(name):
        for found in verdict.nodes:
            honest = found.kind in GOOD or found.test in ("non-finite", UNDEFINED)
            assert honest or found.statistic > FAR, (case.label, str(case.op), found)
            good.append(honest)
    assert name == "RoiAlign" or np.mean(good) > 0.5  # see test_regions_of_interest_are_honest


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("count", [9, 300])
def test_running_sums_and_products_are_honest(name: str, count: int) -> None:
    """PyTorch's, as OpenVINO has none of ONNX's form."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    random = np.random.default_rng(2)
    x = (1 + 0.3 * random.standard_normal((3, count, 7))).astype(np.float32)
    b = Builder("running")
    names = [b.input("x", TensorType.of(x)), b.constant(np.array(1), "axis")]
    graph = b.graph([b.add(REGISTRY[name](), names, ["y"])])
    given = getattr(torch, name.lower())(torch.from_numpy(x), 1).numpy()
    assert check(graph, Recorded({"y": given}), {"x": x}).kind in GOOD
    given = given.copy()
    given[1, 5:] *= np.float32(1.001)
    assert check(graph, Recorded({"y": given}), {"x": x}).kind is Kind.mistake


class Recorded:
    """Answers that are there already."""

    name, capabilities = "recorded", Capabilities()

    def __init__(self, answers: dict[str, np.ndarray]) -> None:
        self.answers, self.stored_inputs = answers, None

    def describe(self) -> dict[str, str]:
        return {}

    def run(self, graph, inputs, keep=None) -> dict[str, np.ndarray]:
        return self.answers


FAR = 20
"""T of an answer that means something else; honest rounding reaches 1."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_openvino_is_honest_or_means_something_else(name: str) -> None:
    """Its answers are rounding, or so far off that rounding has no part in it: nothing between.

    On processors with AVX-512 it computes attention of float16 in float16, which has a name, and
    numbers that no integer holds become others; its Loop ends the process.
    """
    pytest.importorskip("openvino", reason="openvino is not installed")
    runner = OpenVinoRunner(writer=to_bytes, threads=1, isolated=name == "Loop")
    for case in float32_cases(name):
        graph, arrays = graph_of(case)
        try:
            answer = runner.run(graph, arrays)
        except UnsupportedError:
            continue
        except (RuntimeError, SubjectError):
            continue  # it refuses the case, or dies of it
        verdict = check(graph, Recorded(answer), arrays)
        for found in verdict.nodes:
            named = found.kind is Kind.precision and "float16" in case.label
            honest = found.kind in GOOD or found.test in ("non-finite", UNDEFINED)
            assert honest or named or found.statistic > FAR, (case.label, str(case.op), found)


DOMAINS = {
    "Log": lambda x: np.abs(x) + np.float32(1e-30),
    "Sqrt": np.abs,
    "Asin": lambda x: np.clip(x, -0.999, 0.999),
    "Acos": lambda x: np.clip(x, -0.999, 0.999),
    "Atanh": lambda x: np.clip(x, -0.999, 0.999),
    "Acosh": lambda x: 1 + np.abs(x),
}
FUNCTIONS = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "Mish",
    "Reciprocal",
    "Selu",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
]
TORCH = {
    "LogSoftmax": lambda torch, x: torch.log_softmax(x, -1),
    "Softmax": lambda torch, x: torch.softmax(x, -1),
    "Swish": lambda torch, x: torch.nn.functional.silu(x),
}


@pytest.mark.checkered
@pytest.mark.parametrize("peer", ["onnxruntime", "torch"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_honest_over_all_magnitudes(name: str, peer: str) -> None:
    random = np.random.default_rng(3)
    for scale in (1e-3, 0.1, 1, 5, 30, 100):
        x = (random.standard_normal((3, 7, 20, 23)) * scale).astype(np.float32)
        x = np.asarray(DOMAINS.get(name, lambda x: x)(x), np.float32)
        b = Builder("function")
        graph = b.graph([b.add(REGISTRY[name](), [b.input("x", TensorType.of(x))])])
        if peer == "torch":
            runner = FunctionRunner(torch_function(name), "torch")
        else:
            runner = OnnxRuntimeRunner(writer=to_bytes, threads=1, isolated=False)
        try:
            verdict = check(graph, runner, {"x": x}, watch=False)
        except UnsupportedError:
            pytest.skip(f"{name} cannot be written as ONNX")
        except NOT_IMPLEMENTED:
            pytest.skip(f"ONNX Runtime has no {name}")
        assert verdict.kind in GOOD, (scale, verdict.reasons)


def torch_function(name: str):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    special = TORCH.get(name)
    plain = getattr(torch, name.lower(), None)
    smooth = getattr(torch.nn.functional, SNAKE.get(name, name.lower()), None)

    def run(x: np.ndarray) -> np.ndarray:
        t = torch.from_numpy(x)
        return (special(torch, t) if special else (plain or smooth)(t)).numpy()

    return run


SNAKE = {"HardSwish": "hardswish", "LeakyRelu": "leaky_relu"}


@pytest.mark.parametrize(
    ("mode", "runtime"), [("avg", "onnxruntime"), ("avg", "openvino"), ("max", "onnxruntime")]
)
def test_regions_of_interest_are_honest(mode: str, runtime: str) -> None:
    """As opset 16 writes them, which has both kinds of coordinates. OpenVINO's maximum is that of
    the interpolated samples, ONNX's that of their weighted corners: another meaning.
    """
    random = np.random.default_rng(0)
    for i in range(12):
        shape = (2, *random.integers(3, 40, 3).tolist())
        x = (random.standard_normal(shape) * 10.0 ** random.uniform(-2, 2)).astype(np.float32)
        scale = float(random.choice([1.0, 0.5, 0.0625]))
        size = np.array([shape[3], shape[2]])
        first = random.uniform(0, 1, (5, 2)) * size
        last = first + random.uniform(0.05, 0.9, (5, 2)) * size
        rois = (np.concatenate([first, last], 1) / scale).astype(np.float32)
        op = RoiAlign(
            mode=mode,
            coordinate_transformation_mode=["half_pixel", "output_half_pixel"][i % 2],
            output_height=int(random.integers(1, 8)),
            output_width=int(random.integers(2, 7)),
            sampling_ratio=1 if mode == "max" else int(random.integers(0, 4)),
            spatial_scale=scale,
        )
        arrays = {"x": x, "rois": rois, "images": random.integers(0, 2, 5)}
        b = Builder("regions")
        names = [b.input(n, TensorType.of(a)) for n, a in arrays.items()]
        graph = b.graph([b.add(op, names, ["y"])])
        given = (by_onnx_runtime if runtime == "onnxruntime" else by_openvino)(op, arrays)
        verdict = check(graph, Recorded({"y": given}), arrays)
        assert verdict.kind in GOOD, (i, str(op), verdict.reasons)


def written(op: RoiAlign, arrays: dict[str, np.ndarray]) -> bytes:
    kinds = {"float32": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64}
    node = onnx.helper.make_node("RoiAlign", list(arrays), ["y"], **op.attributes())
    inputs = [
        onnx.helper.make_tensor_value_info(n, kinds[str(a.dtype)], a.shape)
        for n, a in arrays.items()
    ]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "regions", inputs, [output])
    opset = onnx.helper.make_opsetid("", 16)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def by_onnx_runtime(op: RoiAlign, arrays: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(written(op, arrays))
    return session.run(None, arrays)[0]


def by_openvino(op: RoiAlign, arrays: dict[str, np.ndarray]) -> np.ndarray:
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    core = openvino.Core()
    asked = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(written(op, arrays)), "CPU", asked)
    return np.array(compiled(arrays)[0])
