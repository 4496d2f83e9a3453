"""RNN, GRU and LSTM against ONNX Runtime, PyTorch in double and their own formulas by hand."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, errors, evaluation, meaning, onnxruntime_says

from verax.base.errors import GraphError, InputError
from verax.ir.operator import REGISTRY, Case, Inference, as_tuple
from verax.ir.types import TensorType
from verax.judge.decide.criterion import decide
from verax.ops.recurrent.activations import ONNX_CURVES, curve, takes
from verax.ops.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from verax.records.verdict import Kind

KINDS: tuple[type[Recurrent], ...] = (RNN, GRU, LSTM)
HONEST = (Kind.identical, Kind.rounding)
NOT_IN_ONNX = ("cell_clip", "projection_clip", "input_from_forget")


def seeded(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def onnx_attributes(op: Recurrent, hidden: int) -> dict[str, Any]:
    """As ONNX has them: alpha and beta only for the activations that take them."""
    found: dict[str, Any] = {"hidden_size": hidden}
    names = op.activations or op.usual * op.directions
    for name, value in op.attributes().items():
        if name.startswith("activation_"):
            key = name.removeprefix("activation_")
            value = [v for n, v in zip(names, value) if key in takes(n)]
        if name not in ("hidden_size", *NOT_IN_ONNX) and value not in (None, (), [], 0):
            found[name] = int(value) if isinstance(value, bool) else value
    return found


def onnx_cases(kind: type[Recurrent]) -> list[Case]:
    """The cases that ONNX Runtime can run: no layout=1, no projection, no bound of the cell."""
    found = []
    for case in kind.cases(seeded(f"onnx {kind.__name__}")):
        op: Any = case.op
        foreign = op.layout or len(case.inputs) > 8 or any(getattr(op, n, 0) for n in NOT_IN_ONNX)
        if case.inputs[0].dtype == np.float32 and not foreign:  # type: ignore[union-attr]
            found.append(case)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_runtime_agrees_within_the_error_model(kind: type[Recurrent]) -> None:
    cases = onnx_cases(kind)
    assert len(cases) >= 3
    for case in cases:
        op: Any = case.op
        said = onnxruntime_says(kind.__name__, case.inputs, onnx_attributes(op, 4), op.output_count)
        agree(op, case.inputs, said)


@pytest.mark.parametrize("name", ONNX_CURVES)
def test_every_activation_is_that_of_onnx_runtime(name: str) -> None:
    """With numbers of their own, and with the defaults that ONNX states; ONNX Runtime takes 0 for
    ThresholdedRelu's, which is 1."""
    rng = seeded(f"activation {name}")
    numbers: dict[str, Any] = {"alpha": 0.625, "beta": 0.375}
    given = {f"activation_{k}": (numbers[k],) for k in takes(name)}
    own = ("Affine", "ScaledTanh", "ThresholdedRelu")
    tried: list[dict[str, Any]] = [{}] if name not in own else []
    for fields in [*tried, *([given] if given else [])]:
        op = RNN(activations=(name,), **fields)
        inputs = RNN.drawn(rng, op, "bhl")
        agree(op, inputs, onnxruntime_says("RNN", inputs, onnx_attributes(op, 4), 2))


def in_torch(op: Recurrent, inputs: Any, dtype: Any) -> list[np.ndarray]:
    """The outputs of PyTorch's layer with the weights of `op`: other orders of gates."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, w, r, b, _, h, c, _, projection = (*inputs, *[None] * 9)[:9]
    order = {1: [0], 3: [1, 0, 2], 4: [0, 2, 3, 1]}[op.gates]
    hidden = r.shape[1] // op.gates

    def sorted_gates(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[g * hidden : (g + 1) * hidden] for g in order])

    kind = {"RNN": torch.nn.RNN, "GRU": torch.nn.GRU, "LSTM": torch.nn.LSTM}[op.kind]
    more: dict[str, Any] = {} if projection is None else {"proj_size": projection.shape[1]}
    if op.activations:
        more["nonlinearity"] = op.activations[0].lower()
    layer = kind(x.shape[2], hidden, batch_first=bool(op.layout), dtype=dtype,
                 bidirectional=op.direction == "bidirectional", **more)  # fmt: skip
    state = {}
    for d, suffix in enumerate(("_l0", "_l0_reverse")[: op.directions]):
        state["weight_ih" + suffix] = sorted_gates(w[d])
        state["weight_hh" + suffix] = sorted_gates(r[d])
        state["bias_ih" + suffix] = sorted_gates(b[d][: op.gates * hidden])
        state["bias_hh" + suffix] = sorted_gates(b[d][op.gates * hidden :])
        if projection is not None:
            state["weight_hr" + suffix] = projection[d]
    layer.load_state_dict({k: torch.tensor(v, dtype=dtype) for k, v in state.items()})
    states = [torch.tensor(s.swapaxes(0, 1) if op.layout else s, dtype=dtype)
              for s in (h, c) if s is not None]  # fmt: skip
    with torch.no_grad():
        y, ends = layer(torch.tensor(x, dtype=dtype), tuple(states) if c is not None else states[0])
    ends = [e.numpy() for e in (ends if isinstance(ends, tuple) else (ends,))]
    y = y.numpy().reshape(*y.shape[:2], op.directions, -1)
    y = y if op.layout else y.transpose(0, 2, 1, 3)
    return [y, *(e.swapaxes(0, 1) if op.layout else e for e in ends)]


TORCH: list[tuple[Recurrent, str]] = [
    (RNN(), "bh"), (RNN(activations=("Relu",)), "bh"), (RNN(layout=1), "bh"),
    (RNN(direction="bidirectional"), "bh"), (GRU(linear_before_reset=True), "bh"),
    (GRU(linear_before_reset=True, direction="bidirectional", layout=1), "bh"),
    (LSTM(), "bhc"), (LSTM(direction="bidirectional"), "bhc"),
    (LSTM(direction="bidirectional", layout=1), "bhcj"), (LSTM(), "bhcj"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "given"), TORCH, ids=str)
def test_the_meaning_is_that_of_pytorch_in_double(op: Recurrent, given: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    inputs = op.drawn(seeded(f"double {op} {given}"), op, given)
    agree(op, inputs, in_torch(op, inputs, torch.float64), DOUBLE)


def larger(op: Recurrent, given: str, scale: float) -> tuple[Any, ...]:
    """Inputs of a layer as large as real ones begin, weights of a usual size times `scale`."""
    rng = seeded(f"larger {op} {scale}")
    inputs = list(op.drawn(rng, op, given, steps=24, batch=3, features=16, hidden=24))
    for i in (1, 2, 3):
        shape = inputs[i].shape
        inputs[i] = (rng.standard_normal(shape) * scale / np.sqrt(24)).astype(np.float32)
    return tuple(inputs)


@pytest.mark.checkered
@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize(("op", "given"), [t for t in TORCH if "j" not in t[1]], ids=str)
def test_honest_runtimes_round_and_a_small_mistake_does_not(
    op: Recurrent, given: str, scale: float
) -> None:
    """Over 24 steps; the mistake is one large weight of the state, off by a thousandth."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if scale > 1 and op.activations:
        pytest.skip("it grows without end")
    inputs = larger(op, given, scale)
    wants, roundings = meaning(op, *inputs), errors(op, *inputs)
    answers = {"PyTorch": in_torch(op, inputs, torch.float32)}
    if not op.layout:
        answers["ONNX Runtime"] = onnxruntime_says(
            op.kind, inputs, onnx_attributes(op, 24), op.output_count
        )
    promised = as_tuple(op.canonical(evaluation(op, inputs), *inputs))
    answers["promised"] = list(promised)
    for runtime, outputs in answers.items():
        for given_, want, rounding in zip(outputs, wants, roundings, strict=True):
            decision = decide(given_, want, rounding)
            assert decision.kind in HONEST, (runtime, decision)
    wrong = list(inputs)
    wrong[2] = inputs[2].copy()
    wrong[2][0, 3, np.abs(inputs[2][0, 3]).argmax()] *= np.float32(1.001)
    moved = as_tuple(op.canonical(evaluation(op, wrong), *wrong))
    assert decide(moved[0], wants[0], roundings[0]).kind is Kind.mistake


@pytest.mark.parametrize("kind", KINDS)
def test_a_shorter_sequence_is_that_sequence_alone(kind: type[Recurrent]) -> None:
    """Behind its end are zeros; the last state is that of its last step, in both directions."""
    op = kind(direction="bidirectional")
    given = "bhlc" if kind is LSTM else "bhl"
    inputs = kind.drawn(seeded(f"lengths {kind.__name__}"), op, given, steps=6, batch=4)
    lengths = inputs[4]
    assert lengths.tolist() == [6, 2, 3, 0]
    y, *ends = meaning(op, *inputs)
    for n, length in enumerate(lengths):
        alone = [a[:, n : n + 1] if i in (0, 5, 6) else a for i, a in enumerate(inputs)]
        alone[0], alone[4] = alone[0][:length], None
        own, *own_ends = meaning(op, *alone)
        np.testing.assert_allclose(y[:length, :, n : n + 1], own, rtol=1e-12)
        assert not y[length:, :, n].any()
        for end, own_end in zip(ends, own_ends):
            np.testing.assert_allclose(end[:, n : n + 1], own_end, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_may_lie_first(kind: type[Recurrent]) -> None:
    op = kind(direction="reverse")
    given = "bhlc" if kind is LSTM else "bhl"
    inputs = kind.drawn(seeded(f"layout {kind.__name__}"), op, given)
    turned = [a.swapaxes(0, 1) if i in (0, 5, 6) else a for i, a in enumerate(inputs)]
    y, *ends = meaning(op, *inputs)
    other, *others = meaning(dataclasses.replace(op, layout=1), *turned)
    np.testing.assert_array_equal(other, y.transpose(2, 0, 1, 3))
    for end, turned_end in zip(ends, others):
        np.testing.assert_array_equal(turned_end, end.swapaxes(0, 1))


def test_the_cell_is_held_in_its_bounds_by_hand() -> None:
    """cell_clip holds the state itself; clip what the gates' activations are given."""
    rng = seeded("bounds of the cell")
    op = LSTM(clip=0.75, cell_clip=0.25, activations=("Sigmoid", "Tanh", "Affine"))
    x, w, r, b, _, h, c = LSTM.drawn(rng, op, "bhc", steps=3, batch=2)
    hidden, cell = h[0].astype(np.float64), c[0].astype(np.float64)
    for t in range(3):
        gates = x[t] @ w[0].T.astype(np.float64) + hidden @ r[0].T + b[0].reshape(2, -1).sum(0)
        i, o, f, g = np.split(np.clip(gates, -0.75, 0.75), 4, axis=1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        cell = np.clip(f * cell + i * np.tanh(g), -0.25, 0.25)
        hidden = o * cell
    _, last, state = meaning(op, x, w, r, b, None, h, c)
    np.testing.assert_allclose(last[0], hidden, rtol=1e-6)
    np.testing.assert_allclose(state[0], cell, rtol=1e-6)
    assert (np.abs(state) == 0.25).any()


def test_the_input_gate_is_made_of_the_forget_gate_by_hand() -> None:
    """With a projection that has a bias and a bound, and activations that are bounded."""
    op = LSTM(
        input_from_forget=True, projection_clip=0.5,
        activations=("Sigmoid", "Clamped", "Relu"), activation_alpha=(0.0, -0.5, 0.0),
        activation_beta=(0.0, 0.75, 0.0),
    )  # fmt: skip
    given = LSTM.drawn(seeded("made of the forget gate"), op, "bhcpjk", steps=3, batch=2)
    x, w, r, b, _, h, c, p, j, k = given
    hidden, cell = h[0].astype(np.float64), c[0].astype(np.float64)
    _, out, keep = np.split(p[0].astype(np.float64), 3)
    for t in range(3):
        gates = x[t] @ w[0].T.astype(np.float64) + hidden @ r[0].T + b[0].reshape(2, -1).sum(0)
        _, o, f, g = np.split(gates, 4, axis=1)
        f = 1 / (1 + np.exp(-(f + keep * cell)))
        cell = f * cell + (1 - f) * np.clip(g, -0.5, 0.75)
        o = 1 / (1 + np.exp(-(o + out * cell)))
        hidden = np.clip((o * np.maximum(cell, 0)) @ j[0].T.astype(np.float64) + k[0], -0.5, 0.5)
    _, last, state = meaning(op, *given)
    np.testing.assert_allclose(last[0], hidden, rtol=1e-6)
    np.testing.assert_allclose(state[0], cell, rtol=1e-6)
    assert (np.abs(last) == 0.5).any()


def test_the_promised_bits_are_summed_in_order() -> None:
    """From both biases, over the input's features, then over the state's; one FMA each."""
    op = RNN(activations=("Affine",))
    x, w, r, b, _, h = RNN.drawn(seeded("order of sums"), op, "bh", steps=1, batch=2)
    (_, last) = as_tuple(op.canonical(evaluation(op, (x, w, r, b, None, h)), x, w, r, b, None, h))
    total = np.broadcast_to(b[0][:4] + b[0][4:], (2, 4)).astype(np.float32)
    for features, matrix in ((x[0], w[0]), (h[0], r[0])):
        for k in range(features.shape[1]):
            exact = features[:, k : k + 1].astype(np.float64) * matrix[:, k] + total
            total = exact.astype(np.float32)
    np.testing.assert_array_equal(last[0], total)


def types(op: Recurrent, given: str, **changed: str) -> list[TensorType | None]:
    inputs = op.drawn(seeded("types"), op, given)
    found = [None if a is None else TensorType.of(a) for a in inputs]
    for index, text in changed.items():
        found[int(index.removeprefix("t"))] = TensorType.parse(text)
    return found


REFUSED: list[tuple[Recurrent, str, dict[str, str], str]] = [
    (RNN(direction="both"), "", {}, "unknown direction 'both'; supported: forward, reverse"),
    (RNN(layout=2), "", {}, "layout is 2"),
    (RNN(clip=-1.0), "", {}, "clip is -1.0"),
    (LSTM(cell_clip=0.0), "", {}, "cell_clip is 0.0"),
    (LSTM(projection_clip=1.0), "bh", {}, "bound of a projection that is not there"),
    (LSTM(projection_clip=-1.0), "bhcj", {}, "projection_clip is -1.0"),
    (LSTM(input_forget=True, input_from_forget=True), "", {}, "is made of the other"),
    (RNN(activations=("Tanh", "Relu")), "", {}, "2 activations are given; forward has 1"),
    (RNN(activations=("Cosine",)), "", {}, "unknown activation 'Cosine'; supported: Relu"),
    (RNN(activations=("Add",)), "", {}, "unknown activation 'Add'"),
    (GRU(activation_alpha=(0.5,)), "", {}, "activation_alpha has 1 numbers for 2"),
    (GRU(hidden_size=5), "", {}, "3 gates of hidden_size"),
    (LSTM(), "", {"t2": "float32[1, 16, 3]"}, "not those of 4 units"),
    (LSTM(), "", {"t2": "float32[1, 16, n]"}, "must be known"),
    (LSTM(), "bh", {"t3": "float32[1, 16]"}, r"input 3 is float32\[1, 16\], not \[1, 32\]"),
    (LSTM(), "bh", {"t5": "float32[3, 1, 4]"}, "input 5"),
    (LSTM(), "bhl", {"t4": "float32[3]"}, "lengths of the sequences are float32"),
    (LSTM(), "bh", {"t5": "float64[1, 3, 4]"}, "input 5 is float64"),
    (RNN(), "", {"t0": "float32[5, 2]"}, "not of rank 3"),
]


@pytest.mark.parametrize(("op", "given", "changed", "why"), REFUSED, ids=str)
def test_what_does_not_fit_is_refused(
    op: Recurrent, given: str, changed: dict[str, str], why: str
) -> None:
    drawn_as = type(op)()
    with pytest.raises(GraphError, match=why):
        op.infer(Inference(tuple(types(drawn_as, given, **changed))))


def test_lengths_beyond_the_sequence_are_refused() -> None:
    inputs = list(GRU.drawn(seeded("too long"), GRU(), "bl"))
    inputs[4] = np.array([2, 6, 1], np.int32)
    with pytest.raises(InputError, match="between 1 and 6; there are 5 steps"):
        meaning(GRU(), *inputs)


def test_no_step_gives_nothing_and_keeps_the_state() -> None:
    op = LSTM()
    inputs = LSTM.drawn(seeded("no step"), op, "bhc", steps=0)
    y, h, c = meaning(op, *inputs)
    assert y.shape == (0, 1, 3, 4)
    np.testing.assert_array_equal(h, inputs[5])
    np.testing.assert_array_equal(c, inputs[6])
    assert [e.sigma.shape for e in errors(op, *inputs)] == [y.shape, h.shape, c.shape]  # type: ignore[union-attr]


def test_an_unknown_length_stays_a_symbol() -> None:
    for op in (RNN(), GRU(direction="bidirectional"), LSTM(layout=1)):
        first = "float32[n, s, 2]" if op.layout else "float32[s, n, 2]"
        found = op.infer(Inference(tuple(types(op, "b", t0=first))))
        shape = ("n", "s", 1, 4) if op.layout else ("s", op.directions, "n", 4)
        assert [str(d) for d in found[0].dims] == [str(d) for d in shape]


def test_every_curve_but_the_local_ones_is_an_operator() -> None:
    for name in ONNX_CURVES:
        assert curve(name).kind == name
        assert name in REGISTRY or name in ("Affine", "ScaledTanh")
