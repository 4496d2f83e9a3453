"""The Python interface: what can be loaded, compiled, evaluated and judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.base.errors import InputError, ModelError, UnsupportedError, UsageError
from verax.records.verdict import Kind

SHAPE = (2, 3, 9, 7)


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    """x [n, 3, 9, 7] -> y = relu(conv(x)) [n, 5, 5, 4], with the inner value `c`."""
    weights = np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5, 5, 4])
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def path(proto: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("api") / "net.onnx"
    found.write_bytes(proto.SerializeToString())
    return found


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)


def test_a_path_its_bytes_and_a_model_proto_give_one_graph(
    path: Path, proto: onnx.ModelProto
) -> None:
    graphs = [verax.load(s).graph for s in (path, str(path), path.read_bytes(), proto)]
    assert all(g == graphs[0] for g in graphs)


def test_open_sizes_can_be_given_by_symbol_or_by_input(path: Path) -> None:
    for shapes in ({"n": 4}, {"x": (4, 3, 9, 7)}):
        assert str(verax.load(path, shapes=shapes).outputs["y"]) == "float32[4, 5, 5, 4]"


def test_both_levels_and_positional_calls_give_the_same_bits(path: Path, x: np.ndarray) -> None:
    found = [verax.compile(path, opt_level=n, threads=1)(x) for n in (0, 1)]
    by_name = verax.compile(path, threads=2).run({"x": x})["y"]
    assert len({a.tobytes() for a in (*found, by_name)}) == 1


def test_one_array_stands_for_the_only_input(path: Path, x: np.ndarray, tmp_path: Path) -> None:
    exe = verax.compile(path, opt_level=1)
    given = exe.run({"x": x})
    exe.save(tmp_path / "net.vx")
    program = verax.load(tmp_path / "net.vx")
    for found in (exe.run(x), program.run(x), exe.step(x)[0], program.step(x)[0]):
        assert {k: v.tobytes() for k, v in found.items()} == {"y": given["y"].tobytes()}
    assert verax.reference(path, x)["y"].shape == given["y"].shape
    assert verax.check(path, exe, x).inputs == verax.check(path, exe, {"x": x}).inputs
    assert exe.profile(x, 1).steps


@pytest.mark.parametrize("wrong", [[np.ones(SHAPE, np.float32)], None, "x.npz", {1, 2}])
def test_what_are_no_inputs_is_said_with_the_form_to_give(path: Path, wrong: object) -> None:
    exe = verax.compile(path)
    for run in (exe.run, exe.step, exe.profile):
        with pytest.raises(InputError, match="arrays by name") as told:
            run(wrong)  # type: ignore[operator]
        assert "{'x': ...}, or the array itself" in str(told.value)


def test_one_array_for_two_inputs_names_them(tmp_path: Path) -> None:
    a, b = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("left", "right"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Sub", ["left", "right"], ["y"])], "n", [a, b], [y])
    exe = verax.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    with pytest.raises(InputError, match="takes 2 inputs") as told:
        exe.run(np.ones((2, 3), np.float32))
    assert "'left': ..., 'right': ..." in str(told.value)
    with pytest.raises(InputError, match="dictionary") as told:
        exe({"left": 1})
    with pytest.raises(InputError, match="holds no numbers"):
        exe.run({"left": "text", "right": np.ones((2, 3), np.float32)})


def test_the_reference_is_near_and_keeps_what_is_asked(path: Path, x: np.ndarray) -> None:
    found = verax.reference(path, {"x": x}, keep=["c", "y"])
    assert found["y"].dtype == np.float64
    np.testing.assert_array_equal(found["y"], np.maximum(found["c"], 0))


def test_a_saved_program_gives_the_same_bits(path: Path, x: np.ndarray, tmp_path: Path) -> None:
    exe = verax.compile(path)
    given = exe.run({"x": x})
    exe.save(tmp_path / "net.vx")
    program = verax.load(tmp_path / "net.vx")
    assert program.run({"x": x})["y"].tobytes() == given["y"].tobytes()
    assert verax.check(path, tmp_path / "net.vx", {"x": x}).kind is Kind.rounding


def test_a_program_has_fixed_shapes(path: Path, tmp_path: Path) -> None:
    exe = verax.compile(path)
    with pytest.raises(InputError):
        exe.save(tmp_path / "net.vx")
    exe.run({"x": np.zeros(SHAPE, np.float32)})
    exe.save(tmp_path / "net.vx")
    with pytest.raises(UsageError):
        verax.load(tmp_path / "net.vx", shapes={"n": 3})
    with pytest.raises(UsageError):
        verax.check(tmp_path / "net.vx", "reference")


def test_every_kind_of_subject_can_be_judged(path: Path, x: np.ndarray) -> None:
    exe = verax.compile(path)
    model = verax.load(path)
    subjects = [
        *("verax:O0", "verax:O1", "reference"),
        *(exe, model, model.graph, exe.run({"x": x}), lambda a: exe(a)),
    ]
    for subject in subjects:
        assert verax.check(path, subject, {"x": x}).kind in (Kind.rounding, Kind.identical)


def test_a_wrong_value_is_a_mistake(path: Path, x: np.ndarray) -> None:
    given = {k: v.copy() for k, v in verax.compile(path).run({"x": x}).items()}
    given["y"][1, 4, 3, 2] += np.float32(0.5)
    verdict = verax.check(path, given, {"x": x})
    assert verdict.kind is Kind.mistake
    assert verdict.exit_code == 1


def test_files_that_cannot_be_read_raise_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        verax.load(tmp_path / "missing.onnx")
    (tmp_path / "a.pth").write_bytes(b"\x80\x02.")
    with pytest.raises(UnsupportedError, match="never opens pickles"):
        verax.load(tmp_path / "a.pth")
    (tmp_path / "a.vx").write_bytes(b"x")
    with pytest.raises(ModelError):
        verax.load(tmp_path / "a.vx")
    (tmp_path / "b.onnx").mkdir()
    with pytest.raises(UsageError, match="folder"):
        verax.load(tmp_path / "b.onnx")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError):
        _ = verax.no_such_thing


def test_dir_shows_the_interface_and_nothing_else() -> None:
    _ = verax.load, verax.check  # what was used before does not add to it
    assert sorted(dir(verax)) == sorted(verax.__all__)
    assert all(hasattr(verax, name) for name in verax.__all__)


def test_two_files_of_one_network_are_aligned_and_converted(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "examples" / "digits"
    made = verax.convert(folder / "digits.h5", tmp_path / "digits.onnx")
    assert made.verdict is not None and made.verdict.exit_code == 0
    found = verax.align(folder / "digits.onnx", tmp_path / "digits.onnx", sizes={"n": 2})
    assert found.exit_code == 0
