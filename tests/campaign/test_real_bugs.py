"""Real faults of runtimes that the campaigns found; the judge has to keep finding them.

Each is a network of one operator. When a runtime's next version is right, its test says so by
failing: then the restriction in `campaign.random_nodes` can go.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import verax
from verax.campaign.network_sketch import Sketch, op
from verax.campaign.outcomes import RUNNERS
from verax.ir.operator import Operator
from verax.judge import check
from verax.records.verdict import Kind, Verdict
from verax.runners.functions import FunctionRunner
from verax.runners.subjects.factory import runner_of


def judged(operator: Operator, runner: str) -> Verdict:
    """The verdict on a runner's answer to one operator, on an input [2, 6, 13, 9]."""
    pytest.importorskip(runner, reason=f"{runner} is not installed")
    s = Sketch("one", np.random.default_rng(0))
    x = s.input("x", s.random.standard_normal((2, 6, 13, 9)).astype(np.float32))
    s.add(operator, [x])
    return check(s.graph(), RUNNERS[runner](), s.inputs, explain=False, twice=False)


def test_openvino_drops_the_fraction_of_the_bias_of_lrn() -> None:
    assert judged(op("LRN", size=3, alpha=0.1, bias=2.0), "openvino").kind is Kind.rounding
    assert judged(op("LRN", size=3, alpha=0.1, bias=1.5), "openvino").kind is Kind.mistake
    assert judged(op("LRN", size=3, alpha=0.1, bias=1.5), "onnxruntime").kind is Kind.rounding


def test_openvino_keeps_a_window_that_begins_behind_the_input() -> None:
    window = op(
        "MaxPool", kernel_shape=(3, 2), strides=(2, 2), pads=((0, 1), (1, 1)), ceil_mode=True
    )
    verdict = judged(window, "openvino")
    assert verdict.kind is Kind.mistake
    assert verdict.nodes[0].reason == "it is float32[2, 6, 7, 6], it should be float32[2, 6, 7, 5]"
    assert judged(window, "onnxruntime").kind is Kind.identical


def test_openvino_counts_what_hangs_over_as_padding() -> None:
    window = {"kernel_shape": (3, 2), "strides": (1, 2), "pads": ((0, 0), (1, 1))}
    counted = op("AveragePool", **window, ceil_mode=True, count_include_pad=True)
    verdict = judged(counted, "openvino")
    assert verdict.kind is Kind.rounding  # nothing hangs over
    counted = op(
        "AveragePool", **{**window, "kernel_shape": (4, 4)}, ceil_mode=True, count_include_pad=True
    )
    assert judged(counted, "openvino").kind is Kind.mistake
    assert judged(counted, "onnxruntime").kind is Kind.rounding


def test_openvino_takes_the_slopes_of_a_fused_prelu_along_the_wrong_axis() -> None:
    """Behind a MatMul the slopes [channels, 1, 1] are read as if they stood for the last axis."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    s = Sketch("fused", np.random.default_rng(0))
    x = s.input("x", s.random.standard_normal((2, 6, 13, 9)).astype(np.float32))
    product = s.add(op("MatMul"), [x, s.normal(9, 6)])
    s.add(op("PRelu"), [product, s.uniform(-0.3, 0.6, 6, 1, 1)])
    verdict = check(s.graph(), RUNNERS["openvino"](), s.inputs, explain=False, twice=False)
    assert verdict.kind is Kind.mistake
    assert any(b.region == ("MatMul0", "PRelu1") for b in verdict.blame)
    assert any("watching changes the subject" in note for note in verdict.notes)


def test_long_integers_from_2_to_the_31_are_not_negative() -> None:
    """ONNX Runtime looked at the lower half alone, until 1.32."""
    numbers = np.array([2**31 - 1, 2**31, 2**32 - 1, 2**32, -5, 3 * 2**30], np.int64)
    s = Sketch("signs", np.random.default_rng(0))
    s.add(op("Sign"), [s.input("x", numbers)])
    graph = s.graph()

    def lower_halves(x: np.ndarray) -> np.ndarray:
        low = x.astype(np.int32)
        return np.where(low == 0, 1, np.sign(low)).astype(np.int64)

    wrong = check(graph, FunctionRunner(lower_halves), s.inputs, explain=False, twice=False)
    assert wrong.kind is Kind.mistake
    assert wrong.nodes[0].reason.startswith("3 of 6 elements differ")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    verdict = check(graph, RUNNERS["onnxruntime"](), s.inputs, explain=False, twice=False)
    right = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)
    assert verdict.kind is (Kind.identical if right else Kind.mistake)


def test_onnxruntime_rounds_inputs_of_products_with_dequantised_weights() -> None:
    """By MatMulNBits, from level extended on: to bytes, which the file does not say."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rng = np.random.default_rng(3)
    s = Sketch("bytes", rng)
    x = s.input("x", rng.standard_normal((3, 48)).astype(np.float32))
    weights = s.constant(rng.integers(-127, 128, (48, 20)), np.int8)
    scales = s.uniform(0.01, 0.02, 20)
    s.add(op("Gemm"), [x, s.add(op("DequantizeLinear", axis=1), [weights, scales]), s.normal(20)])
    for name, kind in (("onnxruntime", Kind.mistake), ("onnxruntime:basic", Kind.rounding)):
        verdict = check(s.graph(), runner_of(name, threads=1), s.inputs, twice=False)
        assert verdict.kind is kind, name
        named = [e.hypothesis for b in verdict.blame for e in b.explanations]
        assert named == ["Gemm1: inputs rounded to bytes in blocks of 32"] * (name == "onnxruntime")


@pytest.mark.parametrize(("length", "kind"), [(1024, Kind.rounding), (1200, Kind.mistake)])
def test_onnxruntime_takes_the_angles_of_a_transform_in_float32(
    length: int, kind: Kind, tmp_path: Path
) -> None:
    """Of Bluestein's chirp, pi k^2 / n, for a length that is no power of two: the largest angles
    have four digits left.

    Judged as the file that it is; NumPy's transform in double is the witness."""
    session = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    text = f"""<ir_version: 9, opset_import: ["": 20]>
        net (float[2,{length},1] x) => (float[2,{length},2] y)
        <int64 axis = {{1}}> {{ y = DFT(x, , axis) }}"""
    path = tmp_path / "transform.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    x = np.random.default_rng(length).standard_normal((2, length, 1)).astype(np.float32)
    verdict = verax.check(path, "onnxruntime", {"x": x}, twice=False)
    assert verdict.kind is kind
    named = [e.hypothesis for b in verdict.blame for e in b.explanations]
    assert named == ["y/MatMul: chirp with angles in float32"] * (kind is Kind.mistake)
    (y,) = session.InferenceSession(path).run(None, {"x": x})
    exact = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    error = np.abs(y[..., 0] + 1j * y[..., 1] - exact).max() / np.sqrt(length)
    assert (error > 1e-4) == (kind is Kind.mistake)
