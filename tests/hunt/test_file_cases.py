"""Cases that only a file states are read as the graph that they are run against."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.hunt.case import NoCase
from verax.hunt.corpus import file_name, model_case, models
from verax.hunt.generate import generate
from verax.hunt.session import hunt
from verax.onnx_format.package import helper, numpy_helper, onnx
from verax.reference.evaluate import evaluate

COUNT = 24


def has_auto_pad(model: onnx.ModelProto) -> bool:
    return any(a.name == "auto_pad" for n in model.graph.node for a in n.attribute)


def is_old(model: onnx.ModelProto) -> bool:
    return 7 <= model.opset_import[0].version <= 12


def has_symbols(model: onnx.ModelProto) -> bool:
    types = [v.type.tensor_type for v in model.graph.input]
    return any(d.dim_param for t in types for d in t.shape.dim)


@pytest.mark.filterwarnings("ignore:the file records")
@pytest.mark.parametrize(
    ("family", "shows"),
    [("auto_pad", has_auto_pad), ("old_opset", is_old), ("symbolic", has_symbols)],
)
def test_a_family_states_what_it_is_for_and_can_be_evaluated(family: str, shows) -> None:
    operators: Counter[str] = Counter()
    shown = 0
    for index in range(COUNT):
        with contextlib.suppress(NoCase):
            case = generate(23, index, (), (family,))
            model = onnx.load_from_string(case.file)
            operators[case.subject_operator] += 1
            shown += shows(model)
            assert set(case.inputs) == {v.name for v in model.graph.input}
            assert evaluate(case.graph, case.inputs)
    assert len(operators) > 4
    assert shown == operators.total() or (family == "symbolic" and shown > COUNT // 2)


def write_model(folder: Path) -> np.ndarray:
    """A model with its input, as ONNX's own test data."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 5])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 5])
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.25)
    graph = helper.make_graph([node], "net", [value], [result])
    opsets = [helper.make_opsetid("", 16)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "model.onnx")
    x = np.random.default_rng(41).standard_normal((2, 5)).astype(np.float32)
    (folder / "test_data_set_0").mkdir()
    data = numpy_helper.from_array(x, "x").SerializeToString()
    (folder / "test_data_set_0/input_0.pb").write_bytes(data)
    return x


def test_a_folder_of_models_is_cases_with_the_inputs_beside_them(tmp_path: Path) -> None:
    (tmp_path / "test_leaky").mkdir()
    x = write_model(tmp_path / "test_leaky")
    for index in (0, 7):
        case = model_case(str(tmp_path), index, 5)
        assert case.aim == "test_leaky" and len(models(str(tmp_path))) == 1
        np.testing.assert_array_equal(case.inputs["x"], x)
    (tmp_path / "test_leaky/test_data_set_0/input_0.pb").unlink()
    assert not np.array_equal(model_case(str(tmp_path), 0, 5).inputs["x"], x)


def test_models_are_hunted_and_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_leaky").mkdir()
    write_model(tmp_path / "test_leaky")
    given = {"families": ("model",), "store": tmp_path / "store", "cases": 1}
    result = hunt("verax:O2", models=tmp_path, **given)
    assert result.counts == {"right": 1}
    (tmp_path / "empty").mkdir()
    for folder, words in (
        (tmp_path / "empty", "no ONNX or TFLite model"),
        ("", "no models to take"),
    ):
        with pytest.raises(UsageError, match=words):
            hunt("verax:O2", models=folder, **given)


def test_a_model_is_called_after_its_content() -> None:
    assert file_name(b"\x1c\x00\x00\x00TFL3\x14") == "model.tflite"
    assert file_name(b"\x08\x0aTFL3") == "model.onnx"
