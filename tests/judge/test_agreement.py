"""Choices over images: near ties are told from mistakes, and every figure is in the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from verax.base.errors import InputError, UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.agreement import agree
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.records.agreement import Agreement
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

Arrays = Mapping[str, np.ndarray]


def scores() -> Graph:
    """x [n, 40] -> scores [n, 5], through 24 hidden values."""
    random = np.random.default_rng(0)
    b = Builder("scores")
    h = b.input("x", TensorType.parse("float32[n, 40]"))
    for i, shape in enumerate([(40, 24), (24, 5)]):
        w = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        h = b.add(MatMul(), [h, b.constant(w, f"w{i}")], [f"h{i}"], f"layer{i}")
        h = b.add(Relu(), [h], [f"r{i}"]) if i == 0 else h
    return b.graph([h])


class Subject:
    """Float32 NumPy whose scores are changed by `change(index of the image, scores)`."""

    name, capabilities = "subject", Capabilities()
    stored_inputs = None

    def __init__(self, change: Callable[[np.ndarray], np.ndarray] = lambda y: y) -> None:
        self.change = change

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        found = evaluate(graph, inputs, work=np.float32)
        return {v: self.change(y.copy()) for v, y in found.items()}


def images(count: int, tie: bool = False) -> dict[str, Callable[[], Arrays]]:
    """Inputs by name; with `tie`, the last is moved until its two best scores nearly meet."""
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, 40)).astype(np.float32) for _ in range(count)]
    if tie:
        arrays[-1] = _tied(scores(), arrays[-1])
    return {f"{i}.png": lambda x=x: {"x": x} for i, x in enumerate(arrays)}


def _tied(graph: Graph, x: np.ndarray) -> np.ndarray:
    """An input between two of different classes, where the best two scores nearly meet."""
    other = np.random.default_rng(7).standard_normal(x.shape).astype(np.float32)

    def choice(t: float) -> int:
        mixed = ((1 - t) * x + t * other).astype(np.float32)
        return int(evaluate(graph, {"x": mixed})["h1"].argmax())

    low, high = 0.0, 1.0
    assert choice(low) != choice(high)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if choice(middle) == choice(low) else (low, middle)
    return ((1 - low) * x + low * other).astype(np.float32)


def test_an_honest_subject_agrees_everywhere() -> None:
    found = agree(scores(), Subject(), images(6))
    assert (found.images, found.agreeing, found.near_ties) == (6, 6, 0)
    assert found.kind in (Kind.rounding, Kind.identical) and found.exit_code == 0
    assert Agreement.from_json(found.to_json()) == found


class Tipping(Subject):
    """The meaning rounded once, but where the two best scores nearly meet the other one wins."""

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        exact = evaluate(graph, inputs)["h1"]
        given = exact.astype(np.float32)
        for y, row in zip(given, exact):
            best, second = np.argsort(-row)[:2]
            if row[best] - row[second] < 1e-5 * abs(row[best]):
                y[second] = np.nextafter(y.max(), np.float32(np.inf))
        return {"h1": given}


def test_a_near_tie_is_no_mistake() -> None:
    found = agree(scores(), Tipping(), images(5, tie=True))
    (flipped,) = found.disagreements
    assert flipped.image == "4.png" and flipped.near
    assert 0 <= flipped.margin <= 1e-5 and flipped.sigma > 0
    assert found.kind is not Kind.mistake and "near ties" in found.reasons[0]


def test_a_wrong_choice_is_a_mistake_and_the_widest_is_judged() -> None:
    found = agree(scores(), Subject(lambda y: np.roll(y, 1, axis=1)), images(5))
    assert found.kind is Kind.mistake and found.exit_code == 1
    assert found.near_ties == 0 and found.agreeing < 5
    margins = [d.margin for d in found.disagreements]
    assert margins == sorted(margins, reverse=True) and found.judged == found.disagreements[0].image


def test_a_nan_is_never_an_agreement() -> None:
    found = agree(scores(), Subject(lambda y: y * np.float32(np.nan)), images(2))
    assert found.agreeing == 0 and found.kind is Kind.mistake


def test_several_rows_are_several_choices() -> None:
    x = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
    found = agree(scores(), Subject(lambda y: -y), {"a": lambda: {"x": x}})
    assert {d.image for d in found.disagreements} == {"a, row 0", "a, row 1", "a, row 2"}


def test_images_are_run_in_batches_and_told_apart() -> None:
    class Counting(Subject):
        runs = 0

        def run(
            self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            self.runs += 1
            y = evaluate(graph, inputs, work=np.float32)["h1"]
            if len(y) > 4:
                y[4] = np.roll(y[4], 1)
            return {"h1": y}

    subject = Counting()
    found = agree(scores(), subject, images(20), watch=False)
    assert [d.image for d in found.disagreements] == ["4.png"]
    assert subject.runs <= 4 and found.images == 20
    wide = np.zeros((2, 40), np.float32)
    mixed = agree(scores(), Subject(), {**images(3), "two": lambda: {"x": wide}})
    assert mixed.images == 4


def test_what_cannot_be_read_is_counted_and_named() -> None:
    def broken() -> Arrays:
        raise InputError("damaged")

    found = agree(scores(), Subject(), {**images(2), "bad.png": broken})
    assert found.images == 2 and found.unread == {"bad.png": "damaged"}
    with pytest.raises(InputError, match="no image of the folder"):
        agree(scores(), Subject(), {"bad.png": broken})


def test_the_output_that_chooses_must_be_clear() -> None:
    graph = scores()
    b = Builder("two")
    x = b.input("x", TensorType.parse("float32[n, 40]"))
    two = b.graph([b.add(Relu(), [x], ["a"]), b.add(Relu(), [x], ["b"])])
    with pytest.raises(UsageError, match="2 outputs"):
        agree(two, Subject(), images(1))
    assert agree(two, Subject(), images(1), output="b").output == "b"
    with pytest.raises(UsageError, match="no output 'c'"):
        agree(graph, Subject(), images(1), output="c")
