"""The figures are those that others count, and flips are told from faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.conftest import as_folder, noisy_digits

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities
from verax.ops.sums.linear import MatMul
from verax.records.evaluation import EvaluationRecord
from verax.reference.evaluate import evaluate

Arrays = Mapping[str, np.ndarray]


def counted(scores: np.ndarray, labels: np.ndarray, k: int) -> int:
    """Rows whose k largest scores hold the label's, by sorting."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return int((best == labels[:, None]).any(axis=1).sum())


def require_same_figures(found: EvaluationRecord, scores: np.ndarray, labels: np.ndarray) -> None:
    top1, top5 = found.accuracy.top1, found.accuracy.topk
    assert (top1.right, top1.of) == (counted(scores, labels, 1), len(labels))
    assert (top5.right, top5.of) == (counted(scores, labels, 5), len(labels))
    assert 0 < top1.right < top5.right < len(labels)  # else these samples show nothing
    assert top1.low < top1.value < top1.high and found.accuracy.k == 5


def test_accuracy_is_what_onnx_runtime_and_numpy_count(digits: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pictures, labels = noisy_digits(75, seed=20)
    folder = as_folder(tmp_path / "digits", pictures, labels)
    found = verax.evaluate(digits, folder, against="onnxruntime")
    session = runtime.InferenceSession(str(digits), providers=["CPUExecutionProvider"])
    x = (pictures[:, None] / 255).astype(np.float32)
    require_same_figures(found, session.run(["probabilities"], {"image": x})[0], labels)
    assert found.comparison is not None
    assert found.comparison.accuracy == found.accuracy
    assert not found.comparison.unexplained and found.exit_code == 0
    assert 0 < found.comparison.largest < 1e-5


def test_accuracy_is_what_the_meaning_gives(digits: Path) -> None:
    pictures, labels = noisy_digits(70, seed=21)
    x = (pictures[:, None] / 255).astype(np.float32)
    scores = verax.reference(verax.load(digits), {"image": x})["probabilities"]
    found = verax.evaluate(digits, pictures, labels)
    require_same_figures(found, scores, labels)
    assert found.comparison is None and EvaluationRecord.from_json(found.to_json()) == found
    assert verax.evaluate(digits, x, labels, batch=7).accuracy == found.accuracy


def test_a_spoilt_weight_flips_samples_beyond_rounding(digits: Path, spoilt: Path) -> None:
    pictures, labels = noisy_digits(33, seed=22)
    found = verax.evaluate(digits, {"images": pictures, "labels": labels}, against=spoilt)
    comparison = found.comparison
    assert comparison is not None and found.exit_code == 1
    assert comparison.unexplained == len(comparison.flips) > 5
    assert sum(way.count for way in comparison.confusion) == len(comparison.flips)
    worst = comparison.flips[0]
    assert worst.margin > 1000 * worst.sigma > 0 and worst.meaning == worst.model
    assert comparison.agreeing == 33 - len(comparison.flips)
    right = [f.model == f.label for f in comparison.flips]
    assert sum(right) == comparison.only_model
    assert EvaluationRecord.from_json(found.to_json()) == found


def linear() -> Graph:
    """x [n, 40] to scores [n, 3]."""
    weights = np.random.default_rng(23).standard_normal((40, 3)).astype(np.float32)
    b = Builder("linear")
    x = b.input("x", TensorType.parse("float32[n, 40]"))
    return b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["scores"], "product")])


class Tipping:
    """The meaning rounded once; where the two best scores nearly meet, the other one wins."""

    name, capabilities, stored_inputs = "tipping", Capabilities(), None

    def __init__(self, within: float) -> None:
        self.within = within

    def describe(self) -> dict[str, str]:
        return {"within": str(self.within)}

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        exact = evaluate(graph, inputs)["scores"]
        given = exact.astype(np.float32)
        for y, row in zip(given, exact):
            best, second = np.argsort(-row)[:2]
            if row[best] - row[second] < self.within:
                y[second] = np.nextafter(y.max(), np.float32(np.inf))
        return {"scores": given}


def nearly_tied(count: int) -> np.ndarray:
    """Inputs [count, 40]; the last lies where the best two scores nearly meet."""
    random, graph = np.random.default_rng(24), linear()
    x = random.standard_normal((count, 40)).astype(np.float32)

    def choice(t: float) -> int:
        return int(evaluate(graph, {"x": mixed(t)})["scores"].argmax())

    def mixed(t: float) -> np.ndarray:
        return np.float32((1 - t) * x[-1:] + t * other)

    other = next(
        row[None]
        for row in random.standard_normal((20, 40)).astype(np.float32)
        if evaluate(graph, {"x": row[None]})["scores"].argmax()
        != evaluate(graph, {"x": x[-1:]})["scores"].argmax()
    )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if choice(middle) == choice(low) else (low, middle)
    x[-1] = mixed(low)
    return x


def test_a_near_tie_is_explained_by_rounding() -> None:
    graph, x = linear(), nearly_tied(11)
    labels = evaluate(graph, {"x": x})["scores"].argmax(axis=1)
    found = verax.evaluate(graph, x, labels, against=Tipping(1e-5))
    assert found.comparison is not None
    (flip,) = found.comparison.flips
    assert flip.sample == "sample 10" and flip.near and 0 <= flip.margin < 1e-5
    assert found.exit_code == 0 and found.comparison.near_ties == 1
    assert found.accuracy.k == 3 and found.accuracy.topk.right == 11  # all classes there are


def test_a_wider_tie_is_not() -> None:
    graph, x = linear(), nearly_tied(40)
    found = verax.evaluate(graph, x, np.zeros(40, int), against=Tipping(1.5))
    assert found.comparison is not None and found.comparison.unexplained > 0
    assert found.exit_code == 1 and found.comparison.flips[-1].near


def test_a_nan_is_a_flip_that_rounding_does_not_explain() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        y = evaluate(linear(), {"x": x})["scores"].astype(np.float32)
        y[x[:, 0] == 7, 1] = np.nan
        return y

    x = np.random.default_rng(25).standard_normal((9, 40)).astype(np.float32)
    x[4, 0] = 7
    found = verax.evaluate(linear(), x, [0, 1, 2] * 3, against=broken)
    assert found.comparison is not None and found.exit_code == 1
    assert [f.sample for f in found.comparison.flips] == ["sample 4"]
    assert found.comparison.accuracy.no_number == 1 and found.comparison.largest == np.inf


def test_undecided_where_float64_has_no_number_either() -> None:
    def other(x: np.ndarray) -> np.ndarray:
        return np.nan_to_num(evaluate(linear(), {"x": x})["scores"]).astype(np.float32)

    x = np.random.default_rng(26).standard_normal((5, 40)).astype(np.float32)
    x[3, 2] = np.nan
    found = verax.evaluate(linear(), x, [0, 1, 2, 0, 1], against=other)
    assert found.comparison is not None and found.comparison.undecided == 1
    assert found.exit_code == 3


def test_a_fixed_batch_is_filled_up(digits: Path) -> None:
    pictures, labels = noisy_digits(17, seed=27)
    open_ = verax.evaluate(digits, pictures, labels)
    fixed = verax.evaluate(verax.load(digits, shapes={"n": 4}), pictures, labels)
    assert fixed.accuracy == open_.accuracy


def test_many_workers_and_batches_change_nothing(digits: Path, tmp_path: Path) -> None:
    pictures, labels = noisy_digits(25, seed=28)
    folder = as_folder(tmp_path / "d", pictures, labels)
    one = verax.evaluate(digits, folder, readers=1, batch=1)
    assert verax.evaluate(digits, folder, readers=4, batch=6).accuracy == one.accuracy
