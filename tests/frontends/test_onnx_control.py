"""If, Loop and Scan, against ONNX Runtime, or ONNX's own evaluator where that is not there."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import verax
from verax.base.errors import InputError, ModelError, UnsupportedError, UsageError
from verax.cli.console import parse_values
from verax.frontends.common import control as common_control
from verax.frontends.common.control import MAX_DEPTH, Branch, CopyCount, Scope, unfold
from verax.frontends.onnx import load_onnx
from verax.ir.dim import symbol
from verax.ir.types import TensorType
from verax.ops.control import control
from verax.records.verdict import Kind

Node = onnx.NodeProto
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = F, dims: Sequence[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def model(
    nodes: Sequence[Node],
    inputs: Sequence[Any],
    outputs: Sequence[str],
    **named: Any,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in named.items()]
    graph = helper.make_graph(list(nodes), "net", list(inputs), [value(o) for o in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def body(nodes: Sequence[Node], inputs: Sequence[Any], outputs: Sequence[Any], **named: Any) -> Any:
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in named.items()]
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs), stored)


def answers(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """By ONNX Runtime; else by ONNX's own evaluator, whose Loop joins what it should stack."""
    try:
        session = importlib.import_module("onnxruntime").InferenceSession(proto.SerializeToString())
    except ImportError:
        if any(n.op_type == "Loop" for n in proto.graph.node):
            pytest.skip("ONNX Runtime is not installed")
        return list(ReferenceEvaluator(proto).run(None, feed))
    return list(session.run(None, feed))


def agree(proto: onnx.ModelProto, feed: dict[str, np.ndarray], **options: Any) -> Any:
    """The model gives what ONNX's evaluator gives, by its meaning and compiled."""
    found = load_onnx(proto, **options)
    wanted = answers(proto, feed)
    given = {n: a for n, a in feed.items() if n in found.graph.inputs}
    by_meaning = verax.reference(found, given)
    compiled = verax.compile(found, opt_level=1, threads=1).run(given)
    for (name, array), right in zip(by_meaning.items(), wanted, strict=True):
        assert array.shape == right.shape
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(compiled[name], right, rtol=1e-5, atol=1e-6)
    return found


X = np.random.default_rng(9301).standard_normal((3, 5)).astype(np.float32)
node = helper.make_node


def branches() -> Node:
    """Relu(x * w) or x - w: both read x from outside, and each has a constant of its own."""
    then = body(
        [node("Mul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"])], [], [value("r")],
        w=np.float32(2.5),
    )  # fmt: skip
    other = body([node("Sub", ["x", "w"], ["m"])], [], [value("m")], w=np.float32(0.75))
    return node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_that_is_known_is_taken_and_the_other_dropped(chosen: bool) -> None:
    proto = model([branches()], [value("x", F, [3, 5])], ["y"], c=np.array(chosen))
    found = agree(proto, {"x": X})
    assert "Where" not in {n.op.kind for n in found.graph.nodes}
    assert ("Mul" in {n.op.kind for n in found.graph.nodes}) == chosen


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_that_is_chosen_while_running(chosen: bool) -> None:
    proto = model([branches()], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    agree(proto, {"x": X, "c": np.array(chosen)})


@pytest.mark.parametrize("chosen", [True, False])
def test_an_input_made_constant_decides(chosen: bool) -> None:
    proto = model([branches()], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    found = agree(proto, {"x": X, "c": np.array(chosen)}, values={"c": np.array(chosen)})
    assert list(found.inputs) == ["x"]


def test_a_choice_between_ranks_is_refused_unless_the_input_is_given() -> None:
    then = body(
        [node("Flatten", ["x"], ["u"]), node("Gather", ["u", "k"], ["t"])], [], [value("t")]
    )
    other = body([node("Identity", ["x"], ["t"])], [], [value("t")])
    chosen = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [value("x", F, [3, 5]), value("c", B, [])]
    proto = model([chosen], inputs, ["y"], k=np.array(1, np.int64))
    with pytest.raises(UnsupportedError, match=r"float32\[5\] or float32\[3, 5\]") as caught:
        load_onnx(proto)
    assert "values=" in str(caught.value)
    agree(proto, {"x": X, "c": np.array(True)}, values={"c": np.array(True)})


@pytest.mark.parametrize("chosen", [True, False])
def test_a_choice_between_sizes_leaves_those_open_in_which_they_differ(chosen: bool) -> None:
    """[3, 5] or [3, 10], and what is computed from it."""
    then = body([node("Exp", ["x"], ["t"])], [], [value("t")])
    other = body([node("Concat", ["x", "x"], ["t"], axis=1)], [], [value("t")])
    choice = node("If", ["c"], ["h"], "choice", then_branch=then, else_branch=other)
    after = node("Sigmoid", ["h"], ["y"])
    proto = model([choice, after], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    inputs = {"x": X, "c": np.array(chosen)}
    found = load_onnx(proto)
    rows, columns = found.outputs["y"].dims
    assert rows == 3 and not isinstance(columns, int)
    exe = verax.compile(found, opt_level=1, threads=1)
    (right,) = answers(proto, inputs)
    for array in (exe.run(inputs)["y"], verax.reference(found, inputs)["y"]):
        assert array.shape == right.shape
        np.testing.assert_allclose(array, right, rtol=1e-6)
    assert verax.check(found, exe, inputs).kind is Kind.rounding


def test_a_branch_that_does_not_fit_is_an_error_of_whoever_chooses_it() -> None:
    then = body([node("MatMul", ["x", "x"], ["t"])], [], [value("t")])
    other = body([node("Neg", ["x"], ["t"])], [], [value("t")])
    chosen = node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other)
    proto = model([chosen], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    found = load_onnx(proto)
    exe = verax.compile(found, opt_level=1, threads=1)
    for run in (lambda feed: verax.reference(found, feed), exe.run):
        (array,) = run({"x": X, "c": np.array(False)}).values()
        assert np.array_equal(array, -X)
        with pytest.raises(InputError, match="does not fit their sizes"):
            run({"x": X, "c": np.array(True)})
    neither = node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=then)
    with pytest.raises(UnsupportedError, match="does not fit") as caught:
        load_onnx(model([neither], [value("x", F, [3, 5]), value("c", B, [])], ["y"]))
    assert "--value" in str(caught.value)


def test_what_a_dropped_branch_lacks_does_not_matter() -> None:
    then = body([node("NotAnOperator", ["x"], ["t"])], [], [value("t")])
    other = body([node("Neg", ["x"], ["t"])], [], [value("t")])
    chosen = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    inputs = [value("x", F, [3, 5]), value("c", B, [])]
    assert load_onnx(model([chosen], inputs, ["y"]), values={"c": np.array(False)}).graph.nodes
    with pytest.raises(UnsupportedError, match="NotAnOperator"):
        load_onnx(model([chosen], inputs, ["y"]), values={"c": np.array(True)})


def test_branches_within_branches_read_what_lies_further_out() -> None:
    """The inner branch reads x, k of the outer branch, and a name that both define."""
    inner = node(
        "If", ["d"], ["z"], "inner",
        then_branch=body([node("Add", ["x", "k"], ["t"])], [], [value("t")]),
        else_branch=body([node("Div", ["k", "x"], ["k2"])], [], [value("k2")]),
    )  # fmt: skip
    then = body([node("Exp", ["x"], ["k"]), inner], [], [value("z")])
    other = body([node("Tanh", ["x"], ["k"])], [], [value("k")])
    outer = node("If", ["c"], ["y"], "outer", then_branch=then, else_branch=other)
    inputs = [value("x", F, [3, 5]), value("c", B, []), value("d", B, [])]
    for c in (True, False):
        for d in (True, False):
            feed = {"x": X, "c": np.array(c), "d": np.array(d)}
            agree(model([outer], inputs, ["y"]), feed)
            agree(model([outer], inputs, ["y"]), feed, values={"d": np.array(d)})


def test_a_branch_by_a_size_is_decided_by_the_shape() -> None:
    """As exporters write squeezing: a rank or a size is compared with a number."""
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["n"]),
        node("Equal", ["n", "five"], ["c"]), branches(),
    ]  # fmt: skip
    proto = model(nodes, [value("x", F, [3, "m"])], ["y"], one=np.array(1), five=np.array(5))
    kinds = {n.op.kind for n in load_onnx(proto, shapes={"m": 5}).graph.nodes}
    assert {"Mul", "Relu"} <= kinds and "Sub" not in kinds
    assert "Sub" in {n.op.kind for n in load_onnx(proto, shapes={"m": 4}).graph.nodes}


def loop(goes_on: str = "", stacked: bool = True) -> Node:
    """a = a * 0.5 + x + i; each run also gives -a."""
    nodes = [
        node("Cast", ["i"], ["f"], to=F), node("Mul", ["a", "half"], ["h"]),
        node("Add", ["h", "x"], ["p"]), node("Add", ["p", "f"], ["a2"]),
        node("Neg", ["a2"], ["n"]), node("Identity", ["go"], ["go2"]),
    ]  # fmt: skip
    outputs = [value("go2", B, []), value("a2"), *([value("n")] if stacked else [])]
    inputs = [value("i", I, []), value("go", B, []), value("a")]
    run = body(nodes, inputs, outputs, half=np.float32(0.5))
    return node("Loop", ["m", goes_on, "x"], ["y", *(["all"] if stacked else [])], "loop", body=run)


@pytest.mark.parametrize("runs", [1, 4])
def test_a_loop_of_known_length_is_unrolled(runs: int) -> None:
    proto = model([loop()], [value("x", F, [3, 5])], ["y", "all"], m=np.array(runs))
    agree(proto, {"x": X})


def test_a_loop_that_never_runs_hands_on_what_it_was_given() -> None:
    proto = model([loop(stacked=False)], [value("x", F, [3, 5])], ["y"], m=np.array(0))
    (found,) = verax.reference(load_onnx(proto), {"x": X}).values()
    assert np.array_equal(found, X)  # ONNX's evaluator cannot run such a loop
    with pytest.raises(UnsupportedError, match="never runs"):
        load_onnx(model([loop()], [value("x", F, [3, 5])], ["y", "all"], m=np.array(0)))


def test_a_loop_ends_when_its_condition_does() -> None:
    """It counts to 3, by a condition that depends on nothing but the count."""
    nodes = [
        node("Add", ["i", "one"], ["k"]), node("Less", ["k", "three"], ["go2"]),
        node("Add", ["a", "x"], ["a2"]),
    ]  # fmt: skip
    run = body(
        nodes, [value("i", I, []), value("go", B, []), value("a")],
        [value("go2", B, []), value("a2")],
        one=np.array(1), three=np.array(3),
    )  # fmt: skip
    many = node("Loop", ["", "c", "x"], ["y"], body=run)
    found = agree(model([many], [value("x", F, [3, 5])], ["y"], c=np.array(True)), {"x": X})
    assert sum(n.op.kind == "Add" for n in found.graph.nodes) >= 3


@pytest.mark.parametrize("runs", [0, 1, 5])
def test_a_loop_that_only_running_counts(runs: int) -> None:
    inputs = [value("x", F, [3, 5]), value("m", I, [])]
    proto = model([loop(stacked=False)], inputs, ["y"])
    found = agree(proto, {"x": X, "m": np.array(runs)})
    assert "Loop" in {n.op.kind for n in found.graph.nodes}
    assert "Loop" not in {
        n.op.kind for n in load_onnx(proto, values={"m": np.array(2)}).graph.nodes
    }


def test_rows_of_a_loop_that_only_running_counts() -> None:
    inputs = [value("x", F, [3, 5]), value("m", I, [])]
    proto = model([loop()], inputs, ["y", "all"])
    agree(proto, {"x": X, "m": np.array(3)})


@pytest.mark.parametrize("far", [1.5, 40.0])
def test_a_loop_that_ends_when_what_it_computes_is_large(far: float) -> None:
    """It doubles; weights, the limit and what is compared come from outside."""
    nodes = [
        node("Mul", ["a", "w"], ["a2"]), node("ReduceMax", ["a2"], ["most"], keepdims=0),
        node("Less", ["most", "far"], ["go2"]), node("Add", ["k", "x"], ["k2"]),
        node("Identity", ["same"], ["same2"]),
    ]  # fmt: skip
    inputs = [value("i", I, []), value("go", B, []), value("a"), value("k"), value("same")]
    outputs = [value("go2", B, []), value("a2"), value("k2"), value("same2")]
    run = body(nodes, inputs, outputs, w=np.float32(2.0))
    many = node("Loop", ["m", "c", "x", "x", "x"], ["y", "k3", "s3"], "until", body=run)
    given = [value("x", F, [3, 5]), value("far", F, []), value("c", B, [])]
    proto = model([many], given, ["y", "k3", "s3"], m=np.array(9))
    feed = {"x": np.abs(X) + np.float32(0.1), "far": np.array(far, np.float32)}
    for c in (True, False):
        agree(proto, {**feed, "c": np.array(c)})
    found = agree(proto, {**feed, "c": np.array(True)}, values={"c": np.array(True)})
    assert "Loop" in {n.op.kind for n in found.graph.nodes}


def test_a_loop_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = body(
        [node("Neg", ["a"], ["a2"]), node("Identity", ["go"], ["go2"])],
        [value("i", I, []), value("go", B, []), value("a")], [value("go2", B, []), value("a2")],
    )  # fmt: skip
    endless = node("Loop", ["", "", "x"], ["y"], body=run)
    with pytest.raises(UnsupportedError, match="nothing ends"):
        load_onnx(model([endless], [value("x", F, [3, 5])], ["y"]))
    monkeypatch.setattr(control, "MOST_RUNS", 50)
    ever = body(
        [node("Abs", ["a"], ["a2"]), node("ReduceMin", ["a2"], ["m"], keepdims=0),
         node("Less", ["none", "m"], ["go2"])],
        [value("i", I, []), value("go", B, []), value("a")], [value("go2", B, []), value("a2")],
        none=np.float32(0),
    )  # fmt: skip
    found = load_onnx(model([node("Loop", ["", "", "x"], ["y"], body=ever)],
                            [value("x", F, [3, 5])], ["y"]))  # fmt: skip
    exe = verax.compile(found, opt_level=1, threads=1)
    for called in (lambda feed: verax.reference(found, feed), exe.run):
        with pytest.raises(InputError, match="not done after"):
            called({"x": X})


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scan(backwards: int, axis: int) -> None:
    """A running sum over the slices of x along an axis, beside the slices doubled."""
    size = {0: 5, 1: 3, -1: 3}[axis]
    nodes = [node("Add", ["s", "row"], ["s2"]), node("Add", ["row", "row"], ["d"])]
    run = body(nodes, [value("s"), value("row")], [value("s2"), value("d")])
    scan = node(
        "Scan", ["s0", "x"], ["s", "d"], body=run, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[backwards], scan_output_axes=[1],
        scan_output_directions=[1 - backwards],
    )  # fmt: skip
    start = np.random.default_rng(9302).standard_normal(size).astype(np.float32)
    proto = model([scan], [value("x", F, [3, 5])], ["s", "d"], s0=start)
    found = load_onnx(proto)
    state, rows = start.copy(), []
    sliced = np.moveaxis(X, axis, 0)
    for row in sliced[::-1] if backwards else sliced:
        state = state + row
        rows.append(row + row)
    stacked = np.stack(rows[::-1] if not backwards else rows, axis=1)
    given = verax.reference(found, {"x": X})
    np.testing.assert_allclose(given["s"], state, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(given["d"], stacked, rtol=1e-6)
    for array, right in zip(given.values(), answers(proto, {"x": X}), strict=True):
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-6)


def scan_of_opset_8(lengths: str = "", dims: Sequence[int | str] = (2, 5, 3)) -> Any:
    """Two scanned inputs [batch, steps, 3], the second from its end."""
    nodes = [node("Mul", ["s", "w"], ["decayed"]), node("Add", ["decayed", "row"], ["s2"]),
             node("Sub", ["s2", "back"], ["d"])]  # fmt: skip
    run = body(nodes, [value(n) for n in ("s", "row", "back")], [value("s2"), value("d")])
    scan = node(
        "Scan", [lengths, "s0", "x", "z"], ["s", "d"], body=run, num_scan_inputs=2,
        directions=[0, 1],
    )  # fmt: skip
    random = np.random.default_rng(9308)
    start, w = (random.standard_normal(n).astype(np.float32) for n in ((2, 3), (3,)))
    proto = model([scan], [value(n, F, dims) for n in "xz"], ["s", "d"], s0=start, w=w)
    proto.opset_import[0].version = 8
    return proto, start, w


@pytest.mark.parametrize("steps", [5, "n"])
def test_a_scan_of_opset_8_goes_over_its_batch(steps: int | str) -> None:
    proto, start, w = scan_of_opset_8(dims=(2, steps, 3))
    found = load_onnx(proto)
    random = np.random.default_rng(9309)
    x, z = (random.standard_normal((2, 5, 3)).astype(np.float32) for _ in "xz")
    state, rows = start, []
    for i in range(5):
        state = state * w + x[:, i]
        rows.append(state - z[:, 4 - i])
    exe = verax.compile(found, opt_level=1, threads=1)
    for given in (verax.reference(found, {"x": x, "z": z}), exe.run({"x": x, "z": z})):
        np.testing.assert_allclose(given["s"], state, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(given["d"], np.stack(rows, 1), rtol=1e-5, atol=1e-6)


def test_lengths_of_a_scan_of_opset_8_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="sequence_lens"):
        load_onnx(scan_of_opset_8("x")[0])


@pytest.mark.parametrize(("axis", "backwards"), [(0, 0), (1, 0), (0, 1), (-1, 1)])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_scan_over_a_size_that_is_open_or_long_stays_a_loop(
    axis: int, backwards: int, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it stacks is turned round and moved, so that its rows lie where others may, too."""
    if not is_open:
        monkeypatch.setattr(common_control, "MAX_RUNS", 2)
    nodes = [node("Add", ["s", "row"], ["s2"]), node("Mul", ["row", "w"], ["d"])]
    run = body(nodes, [value("s"), value("row")], [value("s2"), value("d")])
    scan = node(
        "Scan", ["s0", "x"], ["s", "d"], body=run, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[backwards], scan_output_axes=[1],
        scan_output_directions=[1 - backwards],
    )  # fmt: skip
    dims: list[int | str] = [3, 5]
    size = dims[1 - axis % 2]
    if is_open:
        dims[axis] = "n"
    random = np.random.default_rng(9303)
    start = random.standard_normal(size).astype(np.float32)
    proto = model([scan], [value("x", F, dims)], ["s", "d"], s0=start, w=start + 1)
    found = load_onnx(proto)
    assert "Loop" in [n.op.kind for n in found.graph.nodes]
    assert found.outputs["d"].dims == (size, symbol("n") if is_open else 8 - size)
    exe = verax.compile(found, opt_level=1, threads=1)
    for given in (X, random.standard_normal(X.shape).astype(np.float32)):
        made = exe.run({"x": given})
        assert not exe.plan.on_reference
        meant = verax.reference(found, {"x": given})
        right = answers(proto, {"x": given})
        for a, b, c in zip(made.values(), meant.values(), right, strict=True):
            assert a.shape == c.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda n: n.ClearField("input"),
        lambda n: n.ClearField("attribute"),
        lambda n: n.attribute[0].g.output.append(value("more")),
        lambda n: n.attribute[0].g.node[0].input.__setitem__(0, "nowhere"),
        lambda n: n.attribute[0].g.node[0].output.__setitem__(0, "r"),
        lambda n: n.attribute[0].g.output[0].__setattr__("name", "nowhere"),
        lambda n: n.attribute[0].g.input.append(value("x")),
    ],
)
def test_a_damaged_branch_is_named(spoil: Any) -> None:
    chosen = branches()
    chosen.attribute.sort(key=lambda a: a.name, reverse=True)  # type: ignore[attr-defined]  # then_branch first
    spoil(chosen)
    proto = model([chosen], [value("x", F, [3, 5])], ["y"], c=np.array(True))
    with pytest.raises(ModelError):
        load_onnx(proto)


def test_bodies_that_lie_too_deep_are_refused() -> None:
    """protobuf refuses such files by itself; functions may still nest them."""
    deep = Branch("If", ("c",), ("y",), {}, "deep", depth=MAX_DEPTH)
    scope = Scope(lambda name: None, lambda name: TensorType.parse("bool[]"), str, CopyCount())
    with pytest.raises(ModelError, match="too deep"):
        unfold(deep, scope)


def test_values_are_taken_by_load_and_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    proto = model([branches()], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    onnx.save(proto, path)
    found = verax.load(path, values={"c": True})
    assert list(found.inputs) == ["x"] and found.metadata["inputs made constants"] == "c = True"
    assert parse_values(["a=3", "b=0.5", "c=true", "d=-1e-3"]) == {
        "a": np.array(3), "b": np.array(0.5), "c": np.array(True), "d": np.array(-1e-3),
    }  # fmt: skip
    for wrong in ("c", "=3", "c=much"):
        with pytest.raises(UsageError, match="NAME=NUMBER"):
            parse_values([wrong])


def test_a_value_of_another_type_is_refused() -> None:
    proto = model([branches()], [value("x", F, [3, 5]), value("c", B, [])], ["y"])
    with pytest.raises(UsageError):
        load_onnx(proto, values={"c": np.array(7)})
    with pytest.raises(UsageError):
        load_onnx(proto, values={"d": np.array(True)})
