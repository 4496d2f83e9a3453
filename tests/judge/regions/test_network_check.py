"""Whole networks: cut at what is shown, power stated, blindness and near ties admitted."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.base.errors import InputError
from verax.ir.graph import Builder, Graph, specialize
from verax.ir.types import TensorType
from verax.judge import check, draw_inputs
from verax.judge.protocol import Capabilities
from verax.judge.regions.network import regions, survey
from verax.numerics import statistics as st
from verax.ops.movement.gather import Gather
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add, Div, Mul
from verax.ops.pointwise.rounding import Round
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.arg import ArgMax
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate


class Values:
    """A subject whose values come from float32 NumPy; `show` names the inner ones that it shows."""

    stored_inputs = None

    def __init__(self, show: Sequence[str] = (), **changed: np.ndarray) -> None:
        self.name, self.show, self.changed = "values", show, changed
        self.capabilities = Capabilities(watches=bool(show))

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        names = [*graph.outputs, *(v for v in self.show if keep)]
        found = evaluate(graph, inputs, work=np.float32, keep=names)
        return {**found, **{k: v for k, v in self.changed.items() if k in names}}


def weights(seed: int, *shape: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def chain(last: float = 1.0) -> Graph:
    """x [n, 6] -> a -> r -> t -> y [9, n], with `last` scaling what came before."""
    b = Builder("chain")
    x = b.input("x", TensorType.parse("float32[n, 6]"))
    a = b.add(MatMul(), [x, b.constant(weights(0, 6, 40), "w0")], ["a"], "first")
    r = b.add(Relu(), [a], ["r"], "relu")
    m = b.add(MatMul(), [r, b.constant(weights(1, 40, 9), "w1")], ["m"], "second")
    s = b.add(Mul(), [m, b.constant(np.float32(last), "scale")], ["s"], "scaled")
    p = b.add(Add(), [s, b.constant(weights(2, 9), "offset")], ["p"], "sum")
    return b.graph([b.add(Transpose(perm=(1, 0)), [p], ["y"], "turn")])


X = np.random.default_rng(5).standard_normal((31, 6)).astype(np.float32)


def named(graph: Graph, shown: set[str]) -> list[tuple[str, ...]]:
    return [r.names for r in regions(graph, shown)]


def test_the_cut_follows_what_is_shown() -> None:
    graph = chain()
    every = {v for n in graph.nodes for v in n.outputs}
    assert named(graph, every) == [(n.name,) for n in graph.nodes]
    assert named(graph, {"y"}) == [("first", "relu", "second", "scaled", "sum", "turn")]
    assert named(graph, {"r", "y"}) == [("first", "relu"), ("second", "scaled", "sum", "turn")]
    assert named(graph, {"a", "m"}) == [("first",), ("relu", "second")]


def test_values_that_share_what_is_hidden_are_judged_together() -> None:
    b = Builder("fork")
    x = b.input("x", TensorType.parse("float32[4, 5]"))
    h = b.add(MatMul(), [x, b.constant(weights(0, 5, 7), "w")], ["h"], "h")
    left, right = b.add(Relu(), [h], ["l"], "l"), b.add(Mul(), [h, h], ["r"], "r")
    graph = b.graph([left, right])
    (region,) = regions(graph, {"l", "r"})
    assert (region.names, region.observed) == (("h", "l", "r"), ("l", "r"))
    assert check(graph, Values(), {"x": X[:4, :5]}).kind is Kind.rounding


def test_a_hidden_exact_operation_costs_no_sharpness() -> None:
    verdict = check(chain(), Values(["a", "m", "s", "p"]), {"x": X})
    assert [f.region for f in verdict.nodes if f.value == "m"] == [("relu", "second")]
    assert verdict.method == "every node on its own inputs"


@pytest.mark.parametrize("show", [(), ("r",), ("a", "r", "m", "s", "p")])
def test_honest_values_are_rounding_however_much_is_shown(show: Sequence[str]) -> None:
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((3 + seed, 6)).astype(np.float32)
        assert check(chain(), Values(show), {"x": x}).kind is Kind.rounding


def test_a_mistake_in_a_hidden_region_names_the_region() -> None:
    graph = specialize(chain(), {"n": 31})
    r = evaluate(graph, {"x": X}, work=np.float32, keep=["r"])["r"].copy()
    r[:, 3] *= np.float32(1.001)
    verdict = check(chain(), Values(["r"], r=r, y=continue_from(graph, "r", r)), {"x": X})
    assert [b.region for b in verdict.blame] == [("first", "relu")]


def test_a_network_that_hides_its_input_is_undecided_not_passed() -> None:
    blind = check(chain(last=1e-9), Values(), {"x": X})
    assert blind.kind is Kind.undecided
    assert "blind" in blind.reasons[0]
    assert max(p.smallest_visible for p in blind.power) > st.BLIND
    assert blind.exit_code == 3
    seen = check(chain(last=1e-9), Values(["a", "r", "m", "s", "p"]), {"x": X})
    assert seen.kind is Kind.rounding


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_few_outputs_are_enough_for_an_honest_answer(outputs: int, seed: int) -> None:
    b = Builder("few")
    h = b.input("x", TensorType.parse("float32[1, 6]"))
    for i, (rows, columns) in enumerate([(6, 48), (48, 32), (32, outputs)]):
        h = b.add(MatMul(), [h, b.constant(weights(10 * seed + i, rows, columns), f"w{i}")])
        h = b.add(Tanh(), [h])
    graph = b.graph([h])
    honest = check(graph, Values(), {"x": X[:1]}, seed=seed)
    assert honest.kind in (Kind.rounding, Kind.identical)
    wrong = evaluate(graph, {"x": X[:1]}, work=np.float32)[h] * np.float32(1.001)
    assert (
        check(graph, Values(**{h: wrong}), {"x": X[:1]}, seed=seed, explain=False).kind
        is Kind.mistake
    )


def test_power_says_what_would_have_shown() -> None:
    verdict = check(chain(), Values(), {"x": X})
    assert verdict.power
    for power in verdict.power:
        assert 0 < power.smallest_visible < st.BLIND
        graph = specialize(chain(), {"n": 31})
        values = evaluate(graph, {"x": X}, keep=[power.value])
        noise = np.random.default_rng(1).standard_normal(values[power.value].shape)
        wrong = values[power.value] * (1 + 10 * power.smallest_visible * noise)
        rest = dataclasses.replace(graph, outputs=("y",))
        y = continue_from(rest, power.value, wrong.astype(np.float32))
        assert check(chain(), Values(y=y), {"x": X}, explain=False).kind is Kind.mistake


def continue_from(graph: Graph, value: str, array: np.ndarray) -> np.ndarray:
    """The output when `value` is `array`."""
    b = Builder("rest")
    b.input(value, TensorType.of(array))
    started = False
    for name, constant in graph.constants.items():
        b.constant(constant, name)
    for node in graph.nodes:
        if started:
            b.add_all(node.op, node.inputs, node.outputs, node.name)
        started = started or value in node.outputs
    return evaluate(b.graph(graph.outputs), {value: array}, work=np.float32)["y"]


def classifier(gap: float) -> tuple[Graph, np.ndarray]:
    """x -> logits -> ArgMax, with the two best logits of the first row `gap` (relative) apart."""
    w = weights(3, 6, 5)
    x = X[:7].copy()
    logits = x.astype(float) @ w
    first, second = np.argsort(-logits[0])[:2]
    b = Builder("classifier")
    offset = np.zeros(5)
    offset[second] = (logits[0, first] - logits[0, second]) - gap * abs(logits[0, first])
    h = b.add(MatMul(), [b.input("x", TensorType.of(x)), b.constant(w, "w")], ["h"], "matmul")
    p = b.add(Add(), [h, b.constant(offset.astype(np.float32), "offset")], ["p"], "sum")
    return b.graph([b.add(ArgMax(axis=1), [p], ["best"], "argmax")]), x


def second_best(graph: Graph, x: np.ndarray) -> np.ndarray:
    logits = evaluate(graph, {"x": x}, keep=["p"])["p"]
    best = np.argsort(-logits, axis=1)[:, :1].astype(np.int64)
    best[0] = np.argsort(-logits[0])[1]
    return best


def test_a_near_tie_may_be_decided_by_rounding() -> None:
    graph, x = classifier(gap=0.0)
    verdict = check(graph, Values(best=second_best(graph, x)), {"x": x}, watch=False)
    assert verdict.kind is Kind.rounding
    assert verdict.nodes[0].test == "near ties"


def test_a_clear_choice_may_not() -> None:
    graph, x = classifier(gap=0.01)
    honest = check(graph, Values(), {"x": x}, watch=False)
    assert honest.kind is Kind.identical
    assert "only choices" in honest.reasons[1]
    verdict = check(graph, Values(best=second_best(graph, x)), {"x": x}, watch=False)
    assert verdict.kind is Kind.mistake


def test_quantisation_inside_is_admitted_not_accused() -> None:
    b = Builder("quantised")
    x = b.input("x", TensorType.of(X))
    h = b.add(Div(), [x, b.constant(np.float32(0.1), "step")], ["h"], "scaled")
    q = b.add(Round(), [b.add(MatMul(), [h, b.constant(weights(4, 6, 30), "w")], ["m"])], ["q"])
    graph = b.graph([b.add(MatMul(), [q, b.constant(weights(5, 30, 40), "w2")], ["y"])])
    clear = check(graph, Values(), {"x": X}, watch=False)
    assert clear.kind in (Kind.rounding, Kind.undecided)
    m = evaluate(graph, {"x": X}, keep=["q"])["q"]
    m[4, 7] += 1
    wrong = (m @ weights(5, 30, 40).astype(float)).astype(np.float32)
    assert check(graph, Values(y=wrong), {"x": X}, watch=False).kind is not Kind.rounding


def test_a_value_of_the_wrong_shape_is_blamed_once() -> None:
    values = {v: np.zeros((2, 2), np.float32) for v in ("a", "r", "m", "s", "p", "y")}
    verdict = check(chain(), Values(["a", "r", "m", "s", "p"], **values), {"x": X})
    assert [b.node for b in verdict.blame] == ["first"]
    assert "float32[31, 40]" in verdict.blame[0].reason


def test_nodes_that_lead_nowhere_are_listed_as_unchecked() -> None:
    graph = specialize(chain(), {"n": 31})
    found = survey(graph, {"x": X}, {"r": evaluate(graph, {"x": X}, keep=["r"])["r"]})
    assert set(found.unchecked) == {"second", "scaled", "sum", "turn"}


def test_nan_inputs_prove_nothing() -> None:
    x = X.copy()
    x[3, 2] = np.nan
    assert check(chain(), Values(), {"x": x}).kind is Kind.undecided
    assert check(chain(), Values(["a", "r", "m", "s", "p"]), {"x": x}).kind is Kind.undecided


class Fickle(Values):
    """Gives other bits when it is watched."""

    def run(self, graph, inputs, keep=None):
        found = super().run(graph, inputs, keep)
        if keep:
            found["y"] = np.nextafter(found["y"], np.float32(9))
        return found


def test_an_output_that_is_constant_is_judged_too() -> None:
    b = Builder("constant")
    x = b.input("x", TensorType.parse("float32[n, 6]"))
    c = b.constant(weights(3, 6), "c")
    graph = b.graph([b.add(Add(), [x, c], ["y"], "sum"), c])
    honest = check(graph, Values(), {"x": X})
    assert honest.exit_code == 0
    assert [f.value for f in honest.outputs] == ["y", "c"]
    wrong = check(graph, Values(c=weights(4, 6)), {"x": X})
    assert wrong.kind is Kind.mistake
    assert [b.node for b in wrong.blame] == ["c"]


def test_watching_that_changes_the_subject_is_said() -> None:
    verdict = check(chain(), Fickle(["a"]), {"x": X})
    assert any("watching changes the subject: y" in n for n in verdict.notes)


def test_the_nearer_of_two_sides_is_named() -> None:
    rough = Values(y=evaluate(chain(), {"x": X})["y"].astype(np.float16).astype(np.float32))
    rough.name = "rough"
    (found,) = check(chain(), Values(), {"x": X}, other=rough).comparisons
    assert (found.nearer, found.same_bits) == ("values", False)
    (same,) = check(chain(), Values(), {"x": X}, other=Values()).comparisons
    assert (same.nearer, same.same_bits) == ("neither", True)


def test_drawn_inputs_fit_their_types_and_are_stated() -> None:
    b = Builder("mixed")
    table = b.constant(weights(0, 11, 4), "table")
    row = b.input("row", TensorType.parse("int64[n]"))
    image = b.input("image", TensorType.parse("float32[n, 3, h, 2*w]"))
    flag = b.input("flag", TensorType.parse("bool[5]"))
    graph = b.graph([b.add(Gather(axis=0), [table, row], ["y"]), image, flag])
    arrays, origins = draw_inputs(graph, seed=3)
    again, _ = draw_inputs(graph, seed=3)
    other, _ = draw_inputs(graph, seed=4)
    assert all((arrays[k] == again[k]).all() for k in arrays)
    assert not (arrays["image"] == other["image"]).all()
    assert arrays["row"].max() < 11 and arrays["flag"].dtype == bool
    assert arrays["image"].min() >= 0 and arrays["image"].max() <= 1
    assert len(np.unique(arrays["image"])) > arrays["image"].size * 0.9
    assert len(set(arrays["image"].shape)) == 4
    assert "seed 3" in origins["image"] and "h = " in origins["image"]


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="axis 1 has size 5"):
        check(chain(), Values(), {"x": X[:, :5]})
    with pytest.raises(InputError, match="no input 'z'"):
        check(chain(), Values(), {"x": X, "z": X})
