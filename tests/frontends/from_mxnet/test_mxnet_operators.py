"""Every row of MXNet's table against MXNet 1.9.1 itself, by meaning and compiled."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mxnet_models import Stored, params_bytes, stored

import verax
from verax.base.errors import VeraxError
from verax.export.onnx import to_bytes
from verax.frontends.mxnet.params import read_params
from verax.frontends.mxnet.reader import literal
from verax.frontends.mxnet.table import TABLE
from verax.reference.evaluate import evaluate

HONEST = ("identical", "rounding")
BLIND = {
    "embedding",
    "up_concat",
    "rint",
    "round",
    "fix",
    "np_equal",
    "np_less",
    "np_greater_equal",
}
"""Networks that choose or cut off: the judge cannot judge them by outputs, so bits must agree."""


CHANNELS_LAST = {"conv": (2, "NHWC"), "conv_groups": (2, "NHWC"), "conv_1d": (1, "NWC"),
                 "conv_3d": (3, "NDHWC"), "deconv": (2, "NHWC"), "deconv_groups": (2, "NHWC"),
                 "deconv_1d": (1, "NWC")}  # fmt: skip


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last_is_the_same_network_on_turned_data(name, tmp_path):
    """MXNet runs these layouts on GPUs only; its own answer for the usual layout is the witness."""
    case, (rank, layout) = stored()[name], CHANNELS_LAST[name]
    back, forth = (0, *range(2, rank + 2), 1), (0, rank + 1, *range(1, rank + 1))
    arrays = dict(read_params(case.params))
    for key in arrays:
        if key.endswith("weight"):
            arrays[key] = np.ascontiguousarray(arrays[key].transpose(back))
    symbol = copy.deepcopy(case.symbol)
    symbol["nodes"][-1]["attrs"]["layout"] = layout
    inputs = {k: v.transpose(back) for k, v in case.inputs.items()}
    turned = Stored(symbol, params_bytes(arrays), inputs, {}).load(tmp_path)
    answers = verax.reference(turned, inputs)
    usual = verax.reference(case.load(tmp_path), case.inputs)
    assert all(np.array_equal(answers[k].transpose(forth), v) for k, v in usual.items())


@pytest.mark.parametrize("name", stored())
def test_a_network_means_what_mxnet_answers(name, tmp_path):
    case = stored()[name]
    model = case.load(tmp_path)
    if name in BLIND:
        found = evaluate(model.graph, case.inputs)
        assert all(np.array_equal(found[k], v) for k, v in case.outputs.items())
        return
    assert {n: str(t.dtype) for n, t in model.outputs.items()} == {
        n: str(v.dtype) for n, v in case.outputs.items()
    }
    assert verax.check(model.graph, case.outputs, case.inputs).kind in HONEST


@pytest.mark.slow
@pytest.mark.parametrize("name", stored())
def test_a_compiled_network_gives_its_meaning(name, tmp_path):
    case = stored()[name]
    assert verax.check(case.load(tmp_path).graph, "verax:O1", case.inputs).kind in HONEST


FUSED_WRONGLY = {"names_pool_valid", "names_pool_full"}
"""Networks that ONNX Runtime up to 1.31 gets wrong with its optimizer Pad_Fusion: it takes a Pad
of zeros before a MaxPool for the MaxPool's own padding, which is never a maximum."""


@pytest.mark.parametrize("name", stored())
def test_a_network_written_as_onnx_is_the_same_to_onnx_runtime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    case = stored()[name]
    graph = case.load(tmp_path).graph
    if name in BLIND:
        pytest.skip("the judge cannot judge it")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        to_bytes(graph),
        options,
        ["CPUExecutionProvider"],
        disabled_optimizers=["Pad_Fusion"] if name in FUSED_WRONGLY else [],
    )
    given = {v: case.inputs[v] for v in graph.inputs}
    answers = dict(zip(graph.outputs, session.run(None, given)))
    exact = all(node.op.exact for node in graph.nodes)
    kind = verax.check(graph, answers, given).kind
    assert kind in HONEST or (exact and kind == "undecided")


NOT_IN_1_9 = {
    "MultiBoxPrior": ("_contrib_MultiBoxPrior", "prior"),
    "MultiBoxDetection": ("_contrib_MultiBoxDetection", "detection_1"),
    "_sum": ("add_n", "add_n"),
}
"""Names that older versions had, which MXNet 1.9.1 cannot answer: their new names, and networks."""


def test_every_row_is_in_a_network():
    """Of `stored`, so that `test_no_attribute_is_ignored_in_silence` reads it too."""
    tested = {node["op"] for case in stored().values() for node in case.symbol["nodes"]}
    assert {name for _, name in TABLE} - tested == NOT_IN_1_9.keys()


@pytest.mark.parametrize("name", NOT_IN_1_9)
def test_an_older_name_means_the_same(name, tmp_path):
    new, network = NOT_IN_1_9[name]
    case = stored()[network]
    renamed = json.loads(json.dumps(case.symbol).replace(f'"op": "{new}"', f'"op": "{name}"'))
    assert renamed != case.symbol
    assert case.load(tmp_path, renamed).graph == case.load(tmp_path).graph


DOCUMENTED = json.loads(Path(__file__).with_name("parameters.json").read_text())
"""What MXNet says of its operators' parameters: "type = default", by operator and parameter."""


def spelled_out(symbol):
    """The symbol with every parameter that is absent set to the default that MXNet documents."""
    changed = copy.deepcopy(symbol)
    for node in changed["nodes"]:
        for name, said in DOCUMENTED.get(node["op"], {}).items():
            node.setdefault("attrs", {}).setdefault(name, said.rpartition(" = ")[2])
    return changed


@pytest.mark.parametrize("name", stored())
def test_what_is_absent_is_what_mxnet_documents(name, tmp_path):
    case = stored()[name]
    model = case.load(tmp_path)
    explicit = case.load(tmp_path, spelled_out(case.symbol))
    assert explicit.graph == model.graph


def other(item):
    """Another entry of a tuple."""
    if isinstance(item, tuple):
        return tuple(map(other, item))
    return 1 if item is None else item * 0.7 if isinstance(item, float) else item + 1


def mutations(value: str, kind: str):
    """Other values of a parameter, as texts. kind: its type in MXNet's words."""
    found = literal(value)
    names = re.findall(r"'(\w+)'", kind) if kind.startswith("{") else []
    if kind == "boolean":
        found = bool(found)
    yield from (n for n in names if n != value)
    if isinstance(found, bool):
        yield str(not found)
    elif isinstance(found, int):
        yield from (str(found + 1), str(found + 2))
    elif isinstance(found, float):
        yield from (str(found * 0.5 + 0.17), str(found * 1.2 + 0.11))
    elif isinstance(found, tuple):
        for i, item in enumerate(found):
            yield str((*found[:i], other(item), *found[i + 1 :]))
    elif found is None and not names:
        yield from ("1", "(1,)")
    else:
        yield "nonsense"


def test_no_attribute_is_ignored_in_silence(tmp_path):
    """Each parameter that a row reads changes the result, or is refused, in some network."""
    silent: dict[tuple[str, str], str] = {}
    untried: set[tuple[str, str]] = set()
    for name, case in stored().items():
        symbol = spelled_out(case.symbol)
        case = replace(case, symbol=symbol)
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
                kind = DOCUMENTED.get(node["op"], {}).get(key, "").rpartition(" = ")[0]
                others = mutations(value, kind)
                tried = [differs(case, i, key, m, before, tmp_path) for m in others]
                if tried:
                    silent[spot] = "" if any(tried) else f"{name}: {value}"
                else:
                    untried.add(spot)
    assert len(silent) > 200
    assert {spot: where for spot, where in silent.items() if where} == {}
    assert untried - silent.keys() == set()


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
