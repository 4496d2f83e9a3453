"""Every CoreML layer against the formula that the specification states for it."""

import numpy as np
import pytest
from coreml_index_cases import indexing, sampling, shapes, volumes
from coreml_models import network, setting
from coreml_plain_cases import elementwise, movement
from coreml_recurrent_cases import recurrent
from coreml_window_cases import dense, windows

import verax
from verax.base.errors import VeraxError
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.table import TABLE
from verax.reference.evaluate import evaluate

CASES = [
    *(*windows(), *dense(), *elementwise(), *movement()),
    *(*indexing(), *shapes(), *volumes(), *recurrent(), *sampling()),
]
IDS = [f"{case.kind} {case.label}".strip() for case in CASES]


def results(case, model):
    graph = load_coreml(model.SerializeToString()).graph
    return list(evaluate(graph, case.arrays()).values())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_layer_means_what_the_specification_says(case):
    found = results(case, case.model())
    want = case.meaning(*(a.astype(np.float64) for a in case.arrays().values()))
    want = list(want) if isinstance(want, list | tuple) else [want]
    assert len(found) == len(want)
    for got, expected in zip(found, want):
        assert got.shape == np.shape(expected) or (got.shape == (1,) and np.shape(expected) == ())
        scale = max(1.0, np.abs(expected).max())
        assert np.abs(got - expected).max() < 2**10 * np.finfo(np.float64).eps * scale


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_compiled_layer_gives_its_meaning(case):
    graph = load_coreml(case.model().SerializeToString()).graph
    if not graph.nodes or not case.shapes:
        pytest.skip("the layer is a constant")
    verdict = verax.check(graph, "verax:O1", case.arrays(), watch=False)
    exact = all(node.op.exact for node in graph.nodes)
    assert verdict.kind in ("identical", "rounding") or (exact and verdict.kind == "undecided")


ELSEWHERE = {
    *("array.input", "array.output", "preprocessing.scaler", "preprocessing.meanImage"),
    *("fillDynamic", "reshapeDynamic", "broadcastToDynamic", "sliceDynamic"),
}
"""Borders, tested with networks, and layers after others, tested below."""


def test_no_row_is_without_a_case():
    layers = {name for domain, name in TABLE if not domain}
    assert layers - {case.kind for case in CASES} - ELSEWHERE == set()


def mutations(message, prefix=""):
    """(name of a field, what changes it) for all fields that a message sets, also nested ones."""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.type == field.TYPE_MESSAGE:
            if field.message_type.name == "BorderAmounts":
                yield (
                    path,
                    path,
                    lambda m: setattr(
                        m.borderAmounts[0], "startEdgeSize", m.borderAmounts[0].startEdgeSize + 1
                    ),
                )
            elif field.message_type.name == "WeightParams":
                yield path, path, lambda m: m.floatValue.__setitem__(0, m.floatValue[0] + 0.7)
            elif not hasattr(value, "ListFields"):
                for i, item in enumerate(value):
                    yield from mutations(item, f"{path}__{i}__")
            else:
                yield from mutations(value, f"{path}__")
            continue
        way = prefix[:-2]
        name = field.name
        if not isinstance(value, int | float | str):
            for i in range(len(value)):
                yield path, way, lambda m, n=name, i=i: getattr(m, n).__setitem__(
                    i, not getattr(m, n)[i] if isinstance(getattr(m, n)[i], bool)
                    else getattr(m, n)[i] + 1)  # fmt: skip
        elif isinstance(value, bool):
            yield path, way, lambda m, n=name: setattr(m, n, not getattr(m, n))
        elif field.type == field.TYPE_ENUM:
            for number in field.enum_type.values_by_number:
                if number != value:
                    yield path, way, lambda m, n=name, k=number: setattr(m, n, k)
        else:
            yield path, way, lambda m, n=name: setattr(m, n, getattr(m, n) + 1)


def reach(params, way):
    for name in filter(None, way.split("__")):
        params = params[int(name)] if name.isdigit() else getattr(params, name)
    return params


def test_no_field_is_ignored_in_silence():
    """Each field that a row reads changes the result, or is refused, in some network."""
    silent = {}
    for case in CASES:
        model = case.model()
        before = results(case, model)
        loaded = load_coreml(model.SerializeToString())
        read = {e.attribute for e in loaded.ledger.entries if e.outcome == "consumed"}
        params = getattr(model.neuralNetwork.layers[0], case.kind)
        for path, way, change in mutations(params):
            spot = (case.kind, path)
            if path.replace("__", ".") not in read or silent.get(spot) == "":
                continue
            changed = case.model(lambda p, w=way, f=change: f(reach(p, w)))
            try:
                after = results(case, changed)
            except VeraxError:
                silent[spot] = ""
                continue
            is_same = len(after) == len(before) and all(
                a.shape == b.shape and np.allclose(a, b, rtol=1e-9) for a, b in zip(before, after)
            )
            silent[spot] = case.label or "default" if is_same else ""
    assert len(silent) > 80
    assert {spot: where for spot, where in silent.items() if where} == {}


def after(kind, read, fill, constants, shape):
    """A network of one layer on x of this shape, on constants, and on shapes "SHAPE"."""
    layers = [
        ("loadConstantND", n, [], [n], setting(shape=(len(v),), data=np.array(v, np.float32)))
        for n, v in constants.items()
    ]
    layers.append(("getShape", "s", ["x"], ["SHAPE"], setting()))
    layers.append((kind, "l", read, ["y"], fill))
    return load_coreml(network(layers, {"x": shape}, {"y": ()}).SerializeToString())


SIZED = [
    ("reshapeDynamic", ["x", "c"], setting(), {"c": (5, 6)}, lambda x: x.reshape(5, 6)),
    ("fillDynamic", ["SHAPE"], setting(value=1.5), {}, lambda x: np.full((2, 3, 5), 1.5)),
    (
        "broadcastToDynamic",
        ["x", "c"],
        setting(),
        {"c": (4, 2, 3, 5)},
        lambda x: np.broadcast_to(x, (4, 2, 3, 5)),
    ),
    (
        "sliceDynamic",
        ["x", "b", "SHAPE", "t"],
        setting(beginMasks=(True, False, False), squeezeMasks=(False, True, False)),
        {"b": (1, 2, 1), "t": (1, 1, 2)},
        lambda x: x[:, 2, 1:5:2],
    ),
    (
        "sliceDynamic",
        ["x", "b"],
        setting(endIds=(2, 0, 4), endMasks=(False, True, False), strides=(1, 1, 3)),
        {"b": (1, 1, 0)},
        lambda x: x[1:2, 1:, 0:4:3],
    ),
]
"""Layers that read sizes from inputs: what they read, their parameters, constants, the meaning."""


@pytest.mark.parametrize(("kind", "read", "fill", "constants", "meaning"), SIZED)
def test_layers_take_sizes_from_shapes_and_constants(kind, read, fill, constants, meaning):
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    (found,) = evaluate(after(kind, read, fill, constants, (2, 3, 5)).graph, {"x": x}).values()
    assert np.array_equal(found, meaning(x))


def test_a_slice_whose_ends_only_running_tells_is_refused():
    layers = [
        ("topK", "k", ["x"], ["v", "i"], setting(axis=0, K=1)),
        ("sliceDynamic", "l", ["x", "i"], ["y"], setting(endIds=(3,))),
    ]
    with pytest.raises(VeraxError, match="computed while the network runs"):
        load_coreml(network(layers, {"x": (4,)}, {"y": ()}).SerializeToString())
