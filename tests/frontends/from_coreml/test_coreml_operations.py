"""ML program operations, each alone in a program, against what their documentation says."""

import numpy as np
import pytest
from coreml_operation_cases import operations
from coreml_operations import Operation, program
from coreml_plain_operations import plain_operations
from coreml_sequence_cases import INPUT, SIZE, STEPS, numbers, sequences
from test_coreml_programs import PLAIN, block, message

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.table import TABLE
from verax.reference.evaluate import evaluate

CASES = [*operations(), *sequences(), *plain_operations()]
IDS = [f"{case.kind} {case.label}".strip() for case in CASES]


def results(case, model):
    graph = load_coreml(model.SerializeToString()).graph
    return list(evaluate(graph, case.inputs()).values())


def near(found, want):
    """Whether two results are the same numbers but for the order of float64 operations."""
    scale = max(1.0, np.abs(want).max()) if np.size(want) else 1.0
    return found.shape == np.shape(want) and bool(
        (np.abs(found.astype(float) - want) <= 2**10 * np.finfo(np.float64).eps * scale).all()
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_operation_means_what_its_documentation_says(case):
    found = results(case, case.model())
    exact = {n: a.astype(np.float64) if a.dtype == np.float32 else a
             for n, a in case.inputs().items()}  # fmt: skip
    want = case.meaning(*exact.values())
    want = list(want) if isinstance(want, list | tuple) else [want]
    assert len(found) == len(want)
    for got, expected in zip(found, want):
        assert near(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_compiled_operation_gives_its_meaning(case):
    graph = load_coreml(case.model().SerializeToString()).graph
    verdict = verax.check(graph, "verax:O1", case.inputs(), watch=False)
    exact = all(node.op.exact for node in graph.nodes)
    assert verdict.kind in ("identical", "rounding") or (exact and verdict.kind == "undecided")


def other(content):
    """Another value of an argument, as different as can be while it makes sense."""
    if isinstance(content, bool):
        return not content
    if isinstance(content, str):
        return "no such thing"
    array = np.asarray(content)
    changed = ~array if array.dtype.kind == "b" else array + array.dtype.type(1)
    return changed if array.shape else changed[()]


def test_no_argument_of_an_operation_is_ignored():
    """Each constant argument changes the result, or is refused, in some case."""
    silent, read = {}, {}
    for case in CASES:
        model = case.model()
        want = results(case, model)
        ledger = load_coreml(model.SerializeToString()).ledger
        read |= {(case.kind, e.attribute): e.outcome for e in ledger.entries}
        for name, content in case.arguments.items():
            spot = (case.kind, name)
            if isinstance(content, list) or str(content).startswith("%"):
                continue
            if silent.get(spot) == "" or read.get(spot) == "irrelevant":
                continue
            try:
                found = results(case, case.model(**{name: other(content)}))
            except VeraxError:
                silent[spot] = ""
                continue
            same = len(found) == len(want) and all(near(a, b) for a, b in zip(found, want))
            silent[spot] = case.label or "only" if same else ""
    assert len(silent) > 50
    assert {spot: label for spot, label in silent.items() if label} == {}


@pytest.mark.parametrize("kind", ["random_normal", "read_state", "conv_quantized"])
def test_what_is_not_supported_is_refused_by_name(kind):
    model = program([Operation(kind, {"x": "%x0"})], {"x0": ("float32", (2, 3))})
    with pytest.raises(UnsupportedError, match=kind):
        load_coreml(model.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("gather", {"x": "%x0", "indices": np.int32([0]), "axis": 9}, "gather"),
        ("one_hot", {"indices": np.int32([0]), "one_hot_vector_size": 2**30}, "vectors"),
        ("sliding_windows", {"x": "%x0", "axis": 0, "size": 9}, "windows"),
        ("scatter_nd", {"data": "%x0", "indices": np.int32([[0]]), "updates": "%x0"}, "mode"),
        ("affine", {"x": "%x0", "transform_matrix": "%x0"}, "one integer"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(kind, arguments, said):
    model = program([Operation(kind, arguments)], {"x0": ("float32", (2, 3))})
    with pytest.raises((ModelError, UnsupportedError), match=said):
        load_coreml(model.SerializeToString())


def test_no_operation_is_without_a_case():
    used = {o.type for name in PLAIN for o in block(message(name)).operations}
    rows = {name for domain, name in TABLE if domain == "mil"}
    assert rows - used - {case.kind for case in CASES} == set()


@pytest.mark.parametrize("both", [False, True])
def test_an_lstm_is_that_of_pytorch(both):
    torch = pytest.importorskip("torch")
    layer = torch.nn.LSTM(INPUT, SIZE, bidirectional=both).double()
    order = np.concatenate([np.arange(k * SIZE, (k + 1) * SIZE) for k in (0, 1, 3, 2)])
    arguments = {"x": "%x", "initial_h": "%h", "initial_c": "%c", "output_sequence": True}
    arguments |= {"direction": "bidirectional" if both else "forward"}
    with torch.no_grad():
        for i, suffix in enumerate(("", "_back")[: 1 + both]):
            made = numbers(4, 50 + i)
            ending = "_l0" + ("_reverse" if i else "")
            for name in ("weight_ih", "weight_hh"):
                getattr(layer, name + ending).copy_(torch.from_numpy(made[name]))
                arguments[name + suffix] = made[name][order]
            getattr(layer, "bias_ih" + ending).copy_(torch.from_numpy(made["bias"]))
            getattr(layer, "bias_hh" + ending).zero_()
            arguments["bias" + suffix] = made["bias"][order]
    width, batch = SIZE * (1 + both), 2
    shapes = {"x": (STEPS, batch, INPUT), "h": (batch, width), "c": (batch, width)}
    rng = np.random.default_rng(1)
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    made = Operation("lstm", arguments, dict.fromkeys(("y", "last", "cell"), "float32"))
    model = program([made], {n: ("float32", s) for n, s in shapes.items()})
    found = evaluate(load_coreml(model.SerializeToString()).graph, inputs)
    x, h, c = (torch.from_numpy(v).double() for v in inputs.values())
    parts = [torch.stack(v.chunk(1 + both, 1)) for v in (h, c)]
    y, (last, cell) = layer(x, tuple(parts))
    for name, want in (
        ("y", y),
        ("last", torch.cat(list(last), 1)),
        ("cell", torch.cat(list(cell), 1)),
    ):
        assert near(found[name], want.detach().numpy())


def test_a_gate_of_unclear_meaning_is_refused():
    arguments = {"x": "%x", "initial_h": "%h", **numbers(3, 1), "reset_after": True}
    model = program(
        [Operation("gru", arguments, {"y": "float32", "h": "float32"})],
        {"x": ("float32", (STEPS, 2, INPUT)), "h": ("float32", (2, SIZE))}, 8,
    )  # fmt: skip
    with pytest.raises(ModelError, match="defined twice"):
        load_coreml(model.SerializeToString())
    model = program(
        [Operation("gru", arguments, {"y": "float32", "last": "float32"})],
        {"x": ("float32", (STEPS, 2, INPUT)), "h": ("float32", (2, SIZE))}, 8,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="reset_after"):
        load_coreml(model.SerializeToString())


@pytest.mark.parametrize(
    ("own", "other_", "result"),
    [("float16", "float32", "float16"), ("float32", "float16", "float32")],
)
def test_a_parameter_may_be_of_another_float_type(own, other_, result):
    """0.1 is no float16: what it meets is widened, and the result rounded."""
    x = np.random.default_rng(1).uniform(-1, 1, (2, 3, 4)).astype(own)
    alpha = np.array([0.1, 0.5, 0.7]).astype(other_)
    operation = Operation("prelu", {"x": "%x", "alpha": alpha}, {"y": result})
    model = program([operation], {"x": (own, x.shape)}, 7)
    (found,) = evaluate(load_coreml(model.SerializeToString()).graph, {"x": x}).values()
    wide = x.astype(np.float64)
    want = np.where(wide >= 0, wide, alpha.astype(np.float64)[:, None] * wide)
    assert np.abs(found - want.astype(result)).max() <= np.finfo(np.float32).eps


def test_a_parameter_that_fits_the_narrow_type_is_taken_as_that():
    alpha = np.float32([0.25, 0.5, 0.75])
    operation = Operation("prelu", {"x": "%x", "alpha": alpha}, {"y": "float16"})
    model = program([operation], {"x": ("float16", (2, 3, 4))}, 7)
    graph = load_coreml(model.SerializeToString()).graph
    assert {str(t.dtype) for t in graph.types.values() if t.dtype.is_float} == {"float16"}


def test_a_program_of_several_functions_is_its_default_one():
    made = [program([Operation(kind, {"x": "%x"})], {"x": ("float32", (2, 3))}, 8)
            for kind in ("square", "abs")]  # fmt: skip
    model = made[0]
    model.mlProgram.functions["other"].CopyFrom(made[1].mlProgram.functions["main"])
    x = np.float32([[1, -2, 3], [-4, 5, -6]])

    def answer():
        graph = load_coreml(model.SerializeToString()).graph
        return next(iter(evaluate(graph, {"x": x}).values()))

    assert np.array_equal(answer(), x * x)
    model.description.defaultFunctionName = "other"
    assert np.array_equal(answer(), np.abs(x))
    model.description.defaultFunctionName = "third"
    with pytest.raises(ModelError, match=r"no function 'third', only \['main', 'other'\]"):
        answer()


def test_a_state_is_refused():
    model = program([Operation("square", {"x": "%x"})], {"x": ("float32", (2, 3))}, 8)
    kind = model.mlProgram.functions["main"].inputs[0].type
    kind.stateType.wrappedType.tensorType.dataType = 11
    with pytest.raises(UnsupportedError, match="state"):
        load_coreml(model.SerializeToString())


def test_operations_of_an_unknown_kind_of_program_are_refused():
    model = program([Operation("square", {"x": "%x"})], {"x": ("float32", (2, 3))})
    function = model.mlProgram.functions["main"]
    function.block_specializations["Other1"].CopyFrom(function.block_specializations["CoreML5"])
    function.opset = "Other1"
    with pytest.raises(UnsupportedError, match="Other1"):
        load_coreml(model.SerializeToString())
