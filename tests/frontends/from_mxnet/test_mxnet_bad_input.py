"""Damaged and hostile MXNet files: every outcome is a model or an error that says what is wrong."""

import copy
import json
import struct

import numpy as np
import pytest
from mxnet_models import params_bytes, small, stored, symbol, write

from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.mxnet import load_mxnet
from verax.frontends.mxnet.params import read_params


def load(folder, nodes, params=None):
    return load_mxnet(write(folder, nodes, params_bytes(small()[1]) if params is None else params))


def test_an_empty_array_of_a_shape_that_none_can_have_is_refused():
    array = struct.pack("<Iii4qiii", 0xF993FAC9, 0, 4, 2**50, 2**49, 2**48, 0, 1, 0, 0)
    with pytest.raises(ModelError, match="an array of shape"):
        read_params(struct.pack("<QQQ", 0x112, 0, 1) + array + struct.pack("<Q", 0))


def test_all_unknown_operators_are_listed_at_once(tmp_path):
    nodes = symbol(
        ("null", "data", {}, []),
        ("Foo", "a", {}, [0]),
        ("Bar", "b", {}, [1]),
        ("Foo", "c", {}, [2]),
    )
    with pytest.raises(UnsupportedError, match=r"Bar \(1\), Foo \(2\)"):
        load(tmp_path, nodes)


@pytest.mark.parametrize(
    "kind", ["Custom", "_contrib_Proposal", "_contrib_DeformableConvolution", "_foreach"]
)
def test_what_cannot_be_read_is_refused_by_name(kind, tmp_path):
    nodes = symbol(("null", "data", {}, []), (kind, "a", {"op_type": "mine"}, [0]))
    if kind == "_foreach":
        nodes["nodes"][1]["subgraphs"] = [symbol(("null", "data", {}, []))]
    with pytest.raises(UnsupportedError, match=kind):
        load(tmp_path, nodes)


def test_an_unknown_parameter_is_refused_by_name(tmp_path):
    nodes, _ = small()
    nodes["nodes"][3]["attrs"]["wrap_around"] = "True"
    with pytest.raises(UnsupportedError, match="wrap_around = True"):
        load(tmp_path, nodes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["nodes"][3].update(inputs=[[4, 0, 0]]), "not defined before"),
        (lambda s: s["nodes"][3].update(inputs=[[-1, 0, 0]]), "not defined before"),
        (lambda s: s["nodes"][3].update(inputs=[["c", 0]]), "no reference"),
        (lambda s: s["nodes"][3].update(inputs=None), "not a list"),
        (lambda s: s["nodes"][3].pop("op"), "no operator"),
        (lambda s: s["nodes"][1].update(name="data"), "same name"),
        (lambda s: s.update(heads=[]), "no outputs"),
        (lambda s: s.pop("nodes"), "no list of nodes"),
        (lambda s: s["nodes"][3].update(attrs=[1]), "not a table"),
        (lambda s: s["nodes"][3]["attrs"].update(kernel="(3, 3)"), "kernel_shape"),
        (lambda s: s["nodes"][3]["attrs"].update(kernel="(999999999999999999999, 2)"), "."),
        (lambda s: s["nodes"][3]["attrs"].update(num_filter="7"), "num_filter is 7"),
        (lambda s: s["nodes"][3]["attrs"].update(stride="[" * 5000), "stride"),
        (lambda s: s["nodes"][3]["attrs"].update(no_bias="True"), "inputs"),
    ],
)
def test_a_symbol_that_contradicts_itself_is_refused(change, said, tmp_path):
    nodes = copy.deepcopy(small()[0])
    change(nodes)
    with pytest.raises(ModelError, match=said):
        load(tmp_path, nodes)


@pytest.mark.parametrize("text", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000, b"3"])
def test_what_is_no_symbol_is_refused(text, tmp_path):
    (tmp_path / "net-symbol.json").write_bytes(text)
    (tmp_path / "net-0000.params").write_bytes(params_bytes({}))
    with pytest.raises(ModelError, match="not an MXNet symbol"):
        load_mxnet(tmp_path / "net-symbol.json")


def test_every_cut_of_a_params_file_is_refused():
    whole = params_bytes(small()[1])
    for size in range(1, len(whole)):
        with pytest.raises(ModelError, match="damaged"):
            read_params(whole[:size])


def test_sizes_are_held_against_the_file_before_anything_is_allocated():
    head = struct.pack("<QQQ", 0x112, 0, 1)
    for rank, dims in ((3, (2**40, 2**40, 2)), (1, (2**62,)), (2, (0, -1)), (31, (2,) * 31)):
        array = struct.pack(f"<Iii{rank}q", 0xF993FAC9, 0, rank, *dims)
        with pytest.raises(ModelError):
            read_params(head + array + struct.pack("<iii", 1, 0, 0) + bytes(64))
    with pytest.raises(ModelError, match="do not fit"):
        read_params(struct.pack("<QQQ", 0x112, 0, 2**60))


def test_a_params_file_of_another_network_is_refused(tmp_path):
    with pytest.raises(ModelError, match="lacks 'c_weight'"):
        load(tmp_path, small()[0], params_bytes({"arg:other": np.zeros(3, np.float32)}))


@pytest.mark.parametrize(
    ("kind", "attributes", "shape"),
    [
        ("repeat", {"repeats": "1000000000", "axis": "0"}, (3, 4)),
        ("_contrib_MultiBoxPrior", {"sizes": "(0.1, 0.2)"}, (1, 1, 100_000, 100_000)),
    ],
)
def test_constants_that_would_be_gigantic_are_refused(kind, attributes, shape, tmp_path):
    nodes = symbol(("null", "data", {}, []), (kind, "n", attributes, [0]))
    with pytest.raises(UnsupportedError, match="numbers"):
        load_mxnet(write(tmp_path, nodes, params_bytes({})), {"data": shape})


def test_sparse_arrays_are_refused_and_named():
    with pytest.raises(UnsupportedError, match="sparse"):
        read_params(struct.pack("<QQQIi", 0x112, 0, 1, 0xF993FAC9, 1) + bytes(64))


def test_an_empty_params_file_and_a_missing_symbol(tmp_path):
    path = write(tmp_path, small()[0], b"")
    with pytest.raises(ModelError, match="empty"):
        load_mxnet(path)
    with pytest.raises(UsageError):
        load_mxnet(tmp_path / "gone-symbol.json")


def fuzz(folder, seed, rounds):
    """Damage a symbol or its arrays at random; whatever is not a model must be a `VeraxError`."""
    rng = np.random.default_rng(seed)
    nodes, arrays = small()
    text, data = json.dumps(nodes).encode(), params_bytes(arrays)
    outcomes = {"model": 0, "error": 0}
    path, params = folder / "net-symbol.json", folder / "net-0000.params"
    for _ in range(rounds):
        files = [bytearray(text), bytearray(data)]
        chosen = files[rng.integers(2)]
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(chosen)))
            if rng.random() < 0.7:
                chosen[at] = rng.choice(
                    [0, 1, 0x7F, 0xFF, *b'0129(),."-[]{}', int(rng.integers(256))]
                )
            else:
                del chosen[at : at + int(rng.integers(1, 9))]
        path.write_bytes(files[0])
        params.write_bytes(files[1])
        try:
            load_mxnet(path)
            outcomes["model"] += 1
        except VeraxError:
            outcomes["error"] += 1
    return outcomes


def test_random_damage_gives_a_model_or_an_error(tmp_path):
    assert min(fuzz(tmp_path, 0, 400).values()) > 20


@pytest.mark.slow
def test_much_random_damage_gives_a_model_or_an_error(tmp_path):
    assert min(fuzz(tmp_path, 1, 10_000).values()) > 500


STRANGE = ("", "None", "-1", "0", "7", "1e30", "-2.5", "True", "(0,)", "(1, -1)", "(3, 3, 3)", "()",
           "(2147483647, 2)", "9223372036854775808", "nonsense", "((1, 2), (3,))",
           "[" * 40)  # fmt: skip


def strange(rng, symbol):
    """A symbol with one to three parameters, references or operators exchanged for others."""
    symbol = copy.deepcopy(symbol)
    nodes = [n for n in symbol["nodes"] if n["op"] != "null"]
    for _ in range(rng.integers(1, 4)):
        node = nodes[rng.integers(len(nodes))]
        named, inputs = node.setdefault("attrs", {}), node["inputs"]
        chance = rng.random()
        if chance < 0.6 and named:
            named[list(named)[rng.integers(len(named))]] = STRANGE[rng.integers(len(STRANGE))]
        elif chance < 0.7 and named:
            del named[list(named)[rng.integers(len(named))]]
        elif chance < 0.9 and inputs:
            inputs[rng.integers(len(inputs))] = [int(rng.integers(len(symbol["nodes"]))), 0, 0]
        elif chance < 0.95:
            inputs.append([0, int(rng.integers(3)), 0])
        else:
            node["op"] = nodes[rng.integers(len(nodes))]["op"]
    return symbol


def exchanged(folder, seed, rounds):
    """How often networks of all operators, with something exchanged, were models and errors."""
    rng = np.random.default_rng(seed)
    cases = list(stored().values())
    outcomes = {"model": 0, "error": 0}
    for _ in range(rounds):
        case = cases[rng.integers(len(cases))]
        try:
            case.load(folder, strange(rng, case.symbol))
            outcomes["model"] += 1
        except VeraxError:
            outcomes["error"] += 1
    return outcomes


def test_strange_symbols_give_a_model_or_an_error(tmp_path):
    assert min(exchanged(tmp_path, 0, 300).values()) > 20


@pytest.mark.slow
def test_many_strange_symbols_give_a_model_or_an_error(tmp_path):
    assert min(exchanged(tmp_path, 1, 6_000).values()) > 500
