"""What the networks of ../shared prove, on the example network, which every checkout has.

Whoever adds a claim about a real network adds its sister here, or beside the frontend that it is
about: a checkout without ../shared holds everything that is claimed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.frontends.from_tflite.test_tflite_bytes import fuzz

import verax
from verax.compiler.kernels.target import Target
from verax.export.onnx import to_onnx
from verax.frontends.onnx import load_onnx
from verax.images import read_image
from verax.ir.checker import check as check_graph
from verax.numerics.error_model import U
from verax.records.verdict import Kind
from verax.runners.arrays import load_npz
from verax.runners.onnx_runtime import OnnxRuntimeRunner

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

FOLDER = Path(__file__).parents[2] / "examples" / "digits"
DIGITS = FOLDER / "digits.onnx"
FORMATS = ("onnx", "pt2", "keras", "h5", "pb", "tflite", "mlmodel")
STORED = Path(__file__).parents[1] / "frontends" / "from_tflite" / "networks.npz"
HONEST = (Kind.identical, Kind.rounding)
CHOICES = (
    {"opt_level": 1, "threads": 1},
    {"opt_level": 1, "threads": 2},
    {"opt_level": 0, "threads": 1},
    {"opt_level": 1, "threads": 1, "target": "avx2"},
)


def images(count: int = 2) -> np.ndarray:
    """Float32 in 0..1, [count, 1, 24, 20]."""
    return np.random.default_rng(5).random((count, 1, 24, 20), np.float32)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored run of ONNX Runtime, inputs and outputs, as `../shared` keeps them."""
    session = onnxruntime.InferenceSession(DIGITS, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    outputs = zip(names, session.run(names, {"image": images()}))
    path = tmp_path_factory.mktemp("answers") / "digits.npz"
    np.savez(path, **{"in:image": images()}, **{f"out:{k}": v for k, v in outputs})
    return path


def with_pads(pads: list[int]) -> tuple[bytes, str]:
    """The file with other pads in one convolution; -> that node's value."""
    model = onnx.load(DIGITS)
    node = next(n for n in model.graph.node if n.name == "down1")
    old = next(a for a in node.attribute if a.name == "pads")
    assert list(old.ints) == [0, 0, 1, 1]
    old.CopyFrom(helper.make_attribute("pads", pads))
    return model.SerializeToString(), node.output[0]


def test_stored_answers_are_rounding(answers: Path) -> None:
    verdict = verax.check(DIGITS, load_npz(answers))
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert verdict.method == "outputs only"
    assert verdict.power


def test_the_meaning_is_near_to_the_stored_answers(answers: Path) -> None:
    model = load_onnx(DIGITS)
    check_graph(model.graph)
    with np.load(answers) as stored:
        found = verax.reference(model, {"image": stored["in:image"]})
        assert found.keys() == model.outputs.keys()
        for name, value in found.items():
            error = np.abs(value - stored[f"out:{name}"]).max() / np.abs(value).max()
            assert error < 64 * np.finfo(np.float32).eps


def test_answers_to_another_picture_are_a_mistake(answers: Path) -> None:
    arrays = load_npz(answers)
    arrays.stored_inputs = {"image": np.flip(images(), -1).copy()}
    assert verax.check(DIGITS, arrays).kind is Kind.mistake


def test_the_live_run_is_rounding_at_every_node() -> None:
    graph = load_onnx(DIGITS).graph
    verdict = verax.check(graph, OnnxRuntimeRunner(DIGITS, threads=1), {"image": images()})
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert {f.value for f in verdict.nodes} >= set(graph.outputs)
    assert len(verdict.nodes) >= len(graph.nodes)


@pytest.mark.parametrize("wrong", [[1, 0, 0, 1], [1, 1, 1, 1]], ids=["shifted", "too wide"])
def test_a_wrong_pad_in_the_file_is_named(wrong: list[int]) -> None:
    data, value = with_pads(wrong)
    verdict = verax.check(DIGITS, OnnxRuntimeRunner(data, threads=1), {"image": images()})
    assert verdict.kind is Kind.mistake
    assert [b.value for b in verdict.blame] == [value]


def test_one_set_of_bits_at_every_level_thread_count_and_width(answers: Path) -> None:
    with np.load(answers) as stored:
        wanted = {k[4:]: stored[k] for k in stored if k.startswith("out:")}
    digests, model = set(), verax.load(DIGITS, shapes={"n": 2})
    for choice in CHOICES:
        if not Target.named(str(choice.get("target", "host"))).runs_here():
            continue
        exe = verax.compile(model, **choice)
        first, again = exe.run({"image": images()}), exe.run({"image": images()})
        assert all(first[k].tobytes() == again[k].tobytes() for k in wanted)
        digests.add(hashlib.sha256(b"".join(first[k].tobytes() for k in wanted)).hexdigest())
        assert not exe.plan.on_reference
    assert len(digests) == 1
    for name, array in wanted.items():
        assert np.abs(first[name] - array).max() <= 2**11 * U * np.abs(array).max(), name


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_converts(suffix: str, tmp_path: Path) -> None:
    model = verax.load(FOLDER / f"digits.{suffix}")
    made = verax.convert(model, tmp_path / "net.onnx")
    assert made.verdict is not None, made.unverified
    assert made.verdict.kind in HONEST, made.verdict.reasons
    again = verax.load(tmp_path / "net.onnx")
    assert list(again.inputs) == list(model.inputs)
    assert {str(t) for t in again.outputs.values()} == {str(t) for t in model.outputs.values()}


def test_what_is_written_as_onnx_comes_back_equal() -> None:
    graph = load_onnx(DIGITS).graph
    proto = to_onnx(graph)
    onnx.checker.check_model(proto, full_check=True)
    assert load_onnx(proto).graph == graph


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("digit", [3, 5, 8])
def test_every_format_sees_the_digit(suffix: str, digit: int) -> None:
    model = verax.load(FOLDER / f"digits.{suffix}")
    ((name, type_),) = model.inputs.items()
    picture = read_image(FOLDER / f"{digit}.png", type_).array
    found = verax.reference(model, {name: picture}).values()
    assert [a.argmax() for a in found if a.size == 10] == [digit]


@pytest.mark.parametrize(("suffix", "package"), [("pt2", "torch"), ("tflite", "ai_edge_litert")])
def test_a_file_means_what_its_own_framework_answers(suffix: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    path = FOLDER / f"digits.{suffix}"
    runner = {"pt2": "torch", "tflite": "litert"}[suffix]
    verdict = verax.check(path, f"{runner}:{path}", watch=False)
    assert verdict.kind in HONEST, verdict.reasons


@pytest.mark.parametrize("name", ["painter/int8", "reader/int8"])
def test_a_quantised_network_gives_the_bits_of_its_own_runtime(name: str, tmp_path: Path) -> None:
    """LiteRT's stored answer, from ONNX Runtime on the written file, and by the judge."""
    with np.load(STORED) as stored:
        data, x, want = (stored[f"{name}.{part}"] for part in ("tflite", "in", "out"))
    (tmp_path / "net.tflite").write_bytes(data.tobytes())
    model = verax.load(tmp_path / "net.tflite")
    (input_,), (output,) = model.inputs, model.outputs
    verax.convert(model, tmp_path / "net.onnx", verify=False)
    session = onnxruntime.InferenceSession(
        tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
    )
    assert np.array_equal(session.run(None, {input_: x})[0], want)
    assert verax.check(model, {output: want}, {input_: x}).kind is Kind.identical


def test_a_mutated_network_is_read_or_refused() -> None:
    fuzz([(FOLDER / "digits.tflite").read_bytes()], 24)
