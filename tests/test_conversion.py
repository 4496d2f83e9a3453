"""Verified conversion: what is written is judged, and says so itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax import verified_conversion
from verax.base.errors import UsageError
from verax.records.verdict import Kind
from verax.verified_conversion import convert

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
MODELS = Path(__file__).parents[2] / "shared" / "models"
REAL = (
    *("mtcnn_rnet/rnet.pt2", "mtcnn_rnet/rnet_cut.pb", "resnet8/pretrainedResnet.h5"),
    *("resnet8/pretrainedResnet.tflite", "coreml_same/conv_TOP_LEFT_HEAVY.mlmodel"),
    *("coreml_same/deconv_BOTTOM_RIGHT_HEAVY.mlmodel", "resnet8/pretrainedResnet_quant.tflite"),
)
SUFFIXES = (".onnx", ".pt2", ".pb", ".tflite", ".h5", ".mlmodel", "-symbol.json")
EVERY = sorted(str(p.relative_to(MODELS)) for p in MODELS.glob("*/*") if p.name.endswith(SUFFIXES))
SIZES = {"mobileface_v1/MobileFace_Identification_V1-symbol.json": {"data": (1, 1, 112, 112)}}
COMPUTES_INT64_IN_32_BITS = "resnet8/pretrainedResnet_quant.tflite"
"""Where OpenVINO 2026.4 goes wrong: its int64 has 32 bits."""


def metadata(path: Path) -> dict[str, str]:
    return {p.key: p.value for p in onnx.load(path, load_external_data=False).metadata_props}


def test_the_verdict_is_stored_in_the_file(tmp_path: Path) -> None:
    target = tmp_path / "again.onnx"
    made = convert(verax.load(DIGITS), target)
    assert made.files == (target,)
    assert made.verdict is not None and made.verdict.kind in (Kind.rounding, Kind.identical)
    stored = metadata(target)
    assert stored["verax.verdict"] == made.verdict.kind.value
    assert stored["verax.source"] == "digits.onnx"
    assert len(stored["verax.source_sha256"]) == 64
    assert stored["held_out_accuracy"], "what the source said about itself is kept"
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_a_wrong_file_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The written file, not the graph in memory, is what runs."""
    honest = verified_conversion.write_onnx

    def careless(graph: object, path: Path, **options: object) -> list[Path]:
        files = honest(graph, path, **options)  # type: ignore[arg-type]
        model = onnx.load(path)
        node = next(n for n in model.graph.node if n.name == "down1")
        (pads,) = (a for a in node.attribute if a.name == "pads")
        pads.ints[:] = [*pads.ints[2:], *pads.ints[:2]]
        onnx.save(model, path)
        return files

    monkeypatch.setattr(verified_conversion, "write_onnx", careless)
    made = convert(verax.load(DIGITS, shapes={"n": 2}), tmp_path / "wrong.onnx")
    assert made.verdict is not None and made.verdict.kind is Kind.mistake
    assert [b.node for b in made.verdict.blame] == ["down1"]


def test_without_a_witness_nothing_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_conversion, "installed_version", lambda *names: "")
    made = convert(verax.load(DIGITS), tmp_path / "a.onnx")
    assert made.verdict is None and "pip install onnxruntime" in made.unverified
    assert "verax.verdict" not in metadata(tmp_path / "a.onnx")


def test_a_model_is_not_written_over_itself(tmp_path: Path) -> None:
    copy = tmp_path / "digits.onnx"
    copy.write_bytes(DIGITS.read_bytes())
    with pytest.raises(UsageError, match="over itself"):
        convert(verax.load(copy), copy)
    assert copy.read_bytes() == DIGITS.read_bytes()


@pytest.mark.parametrize("name", REAL)
def test_every_format_converts(name: str, tmp_path: Path) -> None:
    path = MODELS / name
    if not path.exists():
        pytest.skip("../shared/models is missing")
    model = verax.load(path)
    made = convert(model, tmp_path / "net.onnx")
    assert made.verdict is not None, made.unverified
    assert made.verdict.kind in (Kind.rounding, Kind.identical), made.verdict.reasons
    again = verax.load(tmp_path / "net.onnx")
    assert list(again.inputs) == list(model.inputs)
    assert {str(t) for t in again.outputs.values()} == {str(t) for t in model.outputs.values()}
    assert np.all([np.isfinite(f.error) for f in made.verdict.nodes])


def test_a_quantised_network_gives_the_bits_of_its_own_runtime(tmp_path: Path) -> None:
    """resnet8 with int8 weights: LiteRT's stored answer, from ONNX Runtime on the written file."""
    source = MODELS / "resnet8" / "pretrainedResnet_quant.tflite"
    stored = sorted(source.parent.glob("pretrainedResnet_quant*.npz"))
    if not stored:
        pytest.skip("../shared/models is missing")
    target = tmp_path / "net.onnx"
    convert(verax.load(source), target, verify=False)
    assert target.stat().st_size < 4 * source.stat().st_size
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    with np.load(stored[0]) as answers:
        x = next(answers[k] for k in answers.files if k.startswith("in:"))
        want = next(answers[k] for k in answers.files if k.startswith("out:"))
    assert np.array_equal(session.run(None, {session.get_inputs()[0].name: x})[0], want)


def test_names_of_open_sizes_survive(tmp_path: Path) -> None:
    made = verax.convert(DIGITS, tmp_path / "a.onnx", verify=False, opset=18)
    assert made.verdict is None
    (x,) = onnx.load(tmp_path / "a.onnx").graph.input
    assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == ["n", 1, 24, 20]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_real_network_comes_back(name: str, tmp_path: Path) -> None:
    """Written, judged, read again, judged against the source; OpenVINO runs it as well."""
    shapes = SIZES.get(name)
    model = verax.load(MODELS / name, shapes=shapes)
    made = convert(model, tmp_path / "net.onnx")
    assert made.verdict is not None, made.unverified
    assert made.verdict.kind in (Kind.rounding, Kind.identical), made.verdict.reasons
    again = verax.load(tmp_path / "net.onnx", shapes=shapes)
    assert list(again.outputs) == list(model.outputs)
    both = verax.check(again, model)
    assert both.kind in (Kind.rounding, Kind.identical), both.reasons
    foreign = verax.check(again, "openvino")
    if name == COMPUTES_INT64_IN_32_BITS:
        assert foreign.kind is Kind.mistake
    else:
        assert foreign.kind in (Kind.rounding, Kind.identical), foreign.reasons
