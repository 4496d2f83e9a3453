"""Every row of MXNet's table against MXNet 1.9.1 itself, by meaning and compiled."""

import copy

import numpy as np
import pytest
from mxnet_models import stored

import verax
from verax.base.errors import VeraxError
from verax.frontends.mxnet.reader import literal
from verax.frontends.mxnet.table import TABLE
from verax.frontends.onnx import to_bytes
from verax.reference.evaluate import evaluate

HONEST = ("identical", "rounding")
BLIND = "embedding"
"""A network that only chooses, which the judge cannot judge by its outputs."""


@pytest.mark.parametrize("name", stored())
def test_a_network_means_what_mxnet_answers(name, tmp_path):
    case = stored()[name]
    model = case.load(tmp_path)
    if name == BLIND:
        found = evaluate(model.graph, case.inputs)
        assert all(np.array_equal(found[k], v) for k, v in case.outputs.items())
        return
    assert list(model.outputs) == list(case.outputs)
    assert verax.check(model.graph, case.outputs, case.inputs).kind in HONEST


@pytest.mark.slow
@pytest.mark.parametrize("name", stored())
def test_a_compiled_network_gives_its_meaning(name, tmp_path):
    case = stored()[name]
    assert verax.check(case.load(tmp_path).graph, "verax:O1", case.inputs).kind in HONEST


NOT_IN_ONNX = {"MultiBoxDetection"}


@pytest.mark.parametrize("name", stored())
def test_a_network_written_as_onnx_is_the_same_to_onnx_runtime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    case = stored()[name]
    graph = case.load(tmp_path).graph
    if name == BLIND or any(node.op.kind in NOT_IN_ONNX for node in graph.nodes):
        pytest.skip("ONNX has no such operator, or the judge cannot judge")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(to_bytes(graph), options, ["CPUExecutionProvider"])
    given = {v: case.inputs[v] for v in graph.inputs}
    answers = dict(zip(graph.outputs, session.run(None, given)))
    exact = all(node.op.exact for node in graph.nodes)
    kind = verax.check(graph, answers, given).kind
    assert kind in HONEST or (exact and kind == "undecided")


SAME_ROW = {
    *("Convolution_v1", "Pooling_v1", "BatchNorm_v1", "Softmax", "ElementWiseSum", "_sum"),
    *("BlockGrad", "stop_gradient", "make_loss", "identity", "_copy", "broadcast_plus"),
    *("broadcast_minus", "crop", "flatten", "concat", "reshape", "split", "pad", "cast"),
    *("swapaxes", "sum_axis", "max_axis", "min_axis", "MultiBoxPrior", "MultiBoxDetection"),
}
"""Names that MXNet has, or had, for operators which are tested under another."""
SIMPLE = {
    *("Cast", "sigmoid", "tanh", "softsign", "log", "sqrt", "reciprocal", "sin", "cos", "prod"),
    *("elemwise_add", "broadcast_add", "broadcast_div", "broadcast_minimum", "broadcast_power"),
    *("broadcast_equal", "broadcast_not_equal", "broadcast_lesser_equal", "broadcast_greater"),
    *("broadcast_greater_equal", "broadcast_axes"),
    *("LinearRegressionOutput", "MAERegressionOutput"),
}
"""Rows of one word, which others of the same form stand for."""


def test_no_row_is_without_a_network():
    tested = {node["op"] for case in stored().values() for node in case.symbol["nodes"]}
    old = {n for _, n in TABLE if n.startswith("_") and not n.startswith("_contrib")}
    assert {n for _, n in TABLE} - tested - SAME_ROW - SIMPLE - old == set()


def mutations(value: str):
    """Other values of a parameter, as texts."""
    found = literal(value)
    if isinstance(found, bool):
        yield str(not found)
    elif isinstance(found, int):
        yield from (str(found + 1), str(found + 2))
    elif isinstance(found, float):
        yield from (str(found * 0.5 + 0.17), str(found * 1.2 + 0.11))
    elif isinstance(found, tuple):
        for i, item in enumerate(found):
            changed = list(found)
            changed[i] = 1 if item is None else item * 0.7 if isinstance(item, float) else item + 1
            yield str(tuple(changed))
    elif found is not None:
        yield "nonsense"


def test_no_attribute_is_ignored_in_silence(tmp_path):
    """Each parameter that a row reads changes the result, or is refused, in some network."""
    silent: dict[tuple[str, str], str] = {}
    for name, case in stored().items():
        model = case.load(tmp_path)
        before = evaluate(model.graph, case.inputs)
        read = {(e.node, e.attribute) for e in model.ledger.entries if e.outcome == "consumed"}
        for i, node in enumerate(case.symbol["nodes"]):
            for key, value in node.get("attrs", {}).items():
                spot = (node["op"], key)
                if (f"node {node['name']!r} ({node['op']})", key) not in read:
                    continue
                if silent.get(spot) == "":
                    continue
                tried = [differs(case, i, key, m, before, tmp_path) for m in mutations(value)]
                if tried:
                    silent[spot] = "" if any(tried) else f"{name}: {value}"
    assert len(silent) > 90
    assert {spot: where for spot, where in silent.items() if where} == {}


def differs(case, i, key, value, before, folder):
    """Whether a network with one parameter changed is refused or gives something else."""
    changed = copy.deepcopy(case.symbol)
    changed["nodes"][i]["attrs"][key] = value
    try:
        model = case.load(folder, changed)
        after = evaluate(model.graph, case.inputs)
    except VeraxError:
        return True
    return any(
        a.shape != b.shape or not np.allclose(a, b, rtol=1e-9)
        for a, b in zip(before.values(), after.values(), strict=True)
    )
