"""Recurrent operators mean what LiteRT computes, call after call: their state is the model's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.recurrent_cases import (
    BATCH,
    SIZE,
    STEPS,
    Operands,
    hybrid_bidirectional_lstm,
    hybrid_lstm,
    integer_lstm,
    integer_svdf,
    recurrent_cases,
    sequence,
)
from tests.frontends.from_tflite.tflite_peer import drawn, litert_calls
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model, one, several, variable

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.context import ValueNeededError
from verax.frontends.model import Model
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind
from verax.runners.litert import LiteRtRunner

CASES = dict(recurrent_cases())
STORED = np.load(Path(__file__).with_name("recurrent.npz"))
NETWORKS = [name.removesuffix(".tflite") for name in STORED if name.endswith(".tflite")]
HONEST = (Kind.identical, Kind.rounding)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("label", CASES)
def test_an_operator_means_what_litert_computes_in_two_calls(label: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    runner = LiteRtRunner(written(tmp_path, CASES[label]), kernels="builtin", isolated=False)
    loaded = load_tflite(CASES[label])
    verdict = verax.check(loaded, runner)
    assert verdict.kind in HONEST, verdict.reasons
    assert verdict.subject["consecutive runs"] == "2"


@pytest.mark.parametrize("label", ["BIDIRECTIONAL_SEQUENCE_LSTM", "SVDF 2 3", "LSTM basic"])
def test_compiled_it_remembers_what_litert_remembers(label: str) -> None:
    loaded = load_tflite(CASES[label])
    exe = verax.compile(loaded, threads=1, require_native=True)
    first = drawn(loaded)
    calls = [{v: a * scale for v, a in first.items()} for scale in np.float32([1, -0.5, 0.25])]  # type: ignore[attr-defined]
    given = litert_calls(CASES[label], calls)
    for _ in range(2):
        exe.reset()
        for inputs, wanted in zip(calls, given, strict=True):
            for name, array in exe.run(inputs).items():
                np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    assert all(not np.array_equal(a, given[0][v]) for v, a in exe.run(first).items())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_tensorflow_converted_remembers(name: str) -> None:
    loaded = load_tflite(STORED[f"{name}.tflite"].tobytes())
    (x,), exe = loaded.inputs, verax.compile(loaded, require_native=True)
    assert len(loaded.graph.state) == {"forward": 4, "both ways": 8}[name]
    for given, wanted in zip(STORED[f"{name}.in"], STORED[f"{name}.out"], strict=True):
        (found,) = exe.run({x: given}).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert np.abs(exe(STORED[f"{name}.in"][0]) - STORED[f"{name}.out"][0]).max() > 1e-3


def test_a_network_that_tensorflow_converted_is_written_as_onnx(tmp_path: Path) -> None:
    """The converter bounds the cell, so that the layers are written step by step."""
    pytest.importorskip("onnxruntime")
    made = verax.convert(load_tflite(STORED["forward.tflite"].tobytes()), tmp_path / "net.onnx")
    assert made.verdict is not None and made.verdict.kind in HONEST


def test_a_state_that_litert_dropped_is_a_mistake(tmp_path: Path) -> None:
    """A judge that began every call anew would not see what the second call says."""
    pytest.importorskip("ai_edge_litert.interpreter")

    class Forgetful(LiteRtRunner):
        def run_steps(self, graph: Any, steps: Sequence[Any], *rest: Any, **more: Any) -> Any:
            single = super().run_steps
            return [single(graph, [one], *rest, **more)[0] for one in steps]

    data = CASES["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    runner = Forgetful(written(tmp_path, data), kernels="builtin", isolated=False)
    assert verax.check(load_tflite(data), runner).kind is Kind.mistake


def cell(made: Operands, units: int = SIZE) -> list[T | None]:
    return [made.weights(units, SIZE), made.weights(units, units), made.weights(units)]


def test_operators_that_share_a_variable_read_what_was_written_before() -> None:
    made = Operands()
    first, second = cell(made), cell(made)
    tensors = [T((BATCH, SIZE), name="x"), variable((BATCH, SIZE)), *first, *second]
    tensors += [T((BATCH, SIZE), name="y"), T((BATCH, SIZE), name="z")]
    options = {"fused_activation_function": "TANH"}
    ops = [
        Op("RNN", [0, 2, 3, 4, 1], [8], options),
        Op("RNN", [8, 5, 6, 7, 1], [9], options),
        Op("ADD", [1, 9], [10]),
    ]
    tensors.append(T((BATCH, SIZE), name="sum"))
    data = model(tensors, ops, [0], [8, 9, 10])  # type: ignore[arg-type]
    loaded = load_tflite(data)
    assert list(loaded.graph.state) == ["t1"]
    exe, inputs = verax.compile(loaded), drawn(loaded)
    for given in litert_calls(data, [inputs] * 3):
        for name, array in exe.run(inputs).items():
            np.testing.assert_allclose(array, given[name], rtol=1e-5, atol=1e-6)


def test_a_variable_that_nothing_writes_is_zero() -> None:
    tensors = [T((2, 3), name="x"), variable((2, 3)), T((2, 3), name="y")]
    data = model(tensors, [Op("ADD", [0, 1], [2])], [0], [2])
    loaded = load_tflite(data)
    inputs = drawn(loaded)
    assert not loaded.graph.state
    np.testing.assert_array_equal(verax.compile(loaded).run(inputs)["y"], inputs["x"])


def rnn(**changed: Any) -> bytes:
    """A model of one sequence of RNN."""
    parts = {"x": sequence(False), "state": variable((BATCH, 7))} | changed
    operands = [parts["x"], *cell(Operands(), 7), parts["state"]]
    y = T((BATCH, STEPS, 7))
    return one("UNIDIRECTIONAL_SEQUENCE_RNN", operands, y, fused_activation_function="TANH")


def test_a_state_that_is_no_variable_is_refused() -> None:
    """LiteRT refuses it as well."""
    with pytest.raises(UnsupportedError, match=r"variable_operands.*variable tensors"):
        load_tflite(rnn(state=T((BATCH, 7))))


def test_an_open_batch_must_be_given_and_fit_the_state() -> None:
    data = rnn(x=T((1, STEPS, SIZE), signature=(-1, STEPS, SIZE)))
    with pytest.raises(ValueNeededError, match="fits the batch"):
        load_tflite(data)
    with pytest.raises(ModelError, match="not that of a batch of 2"):
        load_tflite(data, shapes={"x0": (2, STEPS, SIZE)})
    assert load_tflite(data, shapes={"x0": (BATCH, STEPS, SIZE)}).graph.state


def test_a_variable_with_content_or_an_open_or_absurd_size_is_refused() -> None:
    full = variable((BATCH, 7))
    full.data = np.ones((BATCH, 7), np.float32)
    with pytest.raises(UnsupportedError, match="begins with zeros"):
        load_tflite(rnn(state=full))
    opened = variable((1, 7))
    opened.signature = (-1, 7)
    with pytest.raises(UnsupportedError, match="left open"):
        load_tflite(rnn(state=opened))
    with pytest.raises(ModelError, match="absurdly large"):
        load_tflite(rnn(state=variable((1 << 30, 1 << 30))))
    with pytest.raises(UnsupportedError, match="a string"):
        load_tflite(rnn(state=variable((BATCH, 7), "a string")))


def test_a_variable_that_is_an_input_or_an_output_is_refused() -> None:
    tensors = [variable((2, 3)), T((2, 3))]
    with pytest.raises(UnsupportedError, match="input or output of the graph"):
        load_tflite(model(tensors, [Op("ABS", [0], [1])], [0], [1]))
    tensors = [T((2, 3)), variable((2, 3)), T((2, 3))]
    ops = [Op("ABS", [0], [1]), Op("NEG", [1], [2])]
    with pytest.raises(UnsupportedError, match="variable tensor as output"):
        load_tflite(model(tensors, ops, [0], [2]))


def lstm(kind: str = "UNIDIRECTIONAL_SEQUENCE_LSTM", **options: Any) -> bytes:
    operands = [sequence(False), *Operands().lstm(7, 7), variable((BATCH, 7)), variable((BATCH, 7))]
    return one(kind, operands, T((BATCH, STEPS, 7)), **options)


def two_way_rnn(joins: bool, auxiliary: int, **options: Any) -> bytes:
    made = Operands()
    major = bool(options.get("time_major"))
    operands: list[T | None] = [sequence(major)]
    for _ in range(2):
        operands += [*cell(made, 7), variable((BATCH, 7))]
    operands.append(sequence(major, auxiliary) if auxiliary else None)
    operands += [made.weights(7, auxiliary) if joins else None for _ in range(2)]
    merged = options.get("merge_outputs")
    results = [sequence(major, 14)] if merged else [sequence(major, 7), sequence(major, 7)]
    return several(
        "BIDIRECTIONAL_SEQUENCE_RNN", operands, results, fused_activation_function="TANH", **options
    )


def two_way_lstm(auxiliary: int, **options: Any) -> bytes:
    made = Operands()
    major = bool(options.get("time_major"))
    aux: list[T | None] = [None] * 8
    if auxiliary:
        aux = made.gates(7, auxiliary) + made.gates(7, auxiliary)
    operands = [
        sequence(major), *made.lstm(7, 7), *made.lstm(7, 7),
        *[variable((BATCH, 7)) for _ in range(4)],
        sequence(major, auxiliary) if auxiliary else None, *aux,
    ]  # fmt: skip
    return several(
        "BIDIRECTIONAL_SEQUENCE_LSTM", operands, [sequence(major, 14)], merge_outputs=1,
        fused_activation_function="TANH", **options,
    )  # fmt: skip


REFUSED = {
    "sign bit": (lstm(fused_activation_function="SIGN_BIT"), "supported: NONE, RELU"),
    "no activation": (lstm(fused_activation_function="NONE"), "not with the cell"),
    "diagonal": (
        lstm(fused_activation_function="TANH", diagonal_recurrent_tensors=1),
        "diagonal_recurrent_tensors",
    ),
    "input of the second direction": (two_way_rnn(False, SIZE, merge_outputs=1), "own input"),
    "time first, apart": (two_way_rnn(False, 0, time_major=1), "exchanges sizes"),
    "time first, another size": (
        two_way_rnn(True, 2, time_major=1, merge_outputs=1), "misreads an auxiliary input",
    ),
    "LSTM, another size": (two_way_lstm(2, time_major=1), "misreads an auxiliary input"),
    "batch first, merged": (two_way_lstm(0, time_major=0), "of the wrong sequence"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_litert_itself_gets_wrong_or_verax_lacks_is_refused(name: str) -> None:
    data, why = REFUSED[name]
    with pytest.raises(UnsupportedError, match=why):
        load_tflite(data)


def test_an_operator_without_its_outputs_is_damaged() -> None:
    made = Operands()
    weights = [made.weights(6, SIZE), made.weights(6, 2), None, variable((BATCH, 12))]
    data = several("SVDF", [T((BATCH, SIZE)), *weights], [], rank=2)
    with pytest.raises(ModelError):
        load_tflite(data)
    tensors = [T((BATCH, SIZE), name="x"), *weights[:2], variable((BATCH, 12)), T((2, 3), name="y")]
    ops = [Op("SVDF", [0, 1, 2, -1, 3], [], {"rank": 2}), Op("ABS", [0], [4])]
    with pytest.raises(ModelError, match="it has only 1 outputs"):
        load_tflite(model(tensors, ops, [0], [4]))  # type: ignore[arg-type]


def test_quantised_weights_are_refused_with_the_reason() -> None:
    rng = np.random.default_rng(5)
    weights = [const(rng.integers(-127, 127, s, "int8"), [0.01], [0]) for s in ((7, SIZE), (7, 7))]
    operands = [sequence(False), *weights, Operands().weights(7), variable((BATCH, 7))]
    data = one("UNIDIRECTIONAL_SEQUENCE_RNN", operands, sequence(False, 7))
    with pytest.raises(UnsupportedError, match="rounded in every step; convert the model without"):
        load_tflite(data)


def test_state_is_written_into_onnx_and_read_back(tmp_path: Path) -> None:
    loaded = load_tflite(CASES["BIDIRECTIONAL_SEQUENCE_RNN"])
    target = tmp_path / "net.onnx"
    verax.convert(loaded, target)
    again: Model = verax.load(target)
    assert list(again.graph.state) == list(loaded.graph.state)


@pytest.mark.parametrize(("rank", "memory", "bias"), [(2, 3, True), (1, 4, False), (3, 1, True)])
def test_svdf_of_integers_has_litert_s_bits_call_after_call(
    rank: int, memory: int, bias: bool
) -> None:
    made = integer_svdf(rank, memory, bias=bias)
    rng = np.random.default_rng(48)
    calls = [
        {"x0": rng.integers(-128, 128, (BATCH, SIZE)).astype(np.int8)} for _ in range(memory + 2)
    ]
    exe = verax.compile(load_tflite(made), threads=1, require_native=True)
    seen: set[int] = set()
    for inputs, given in zip(calls, litert_calls(made, calls), strict=True):
        (y,) = (v for k, v in exe.run(inputs).items() if k == "y")
        assert np.array_equal(y, given["y"])
        seen.update(y.ravel().tolist())
    assert len(seen) > 5


def test_settings_that_litert_s_integer_svdf_has_not_are_refused() -> None:
    """LiteRT fails on another activation, and takes none where the zero point is another."""
    with pytest.raises(UnsupportedError, match=r"output0\.zero_point"):
        load_tflite(integer_svdf(2, 3, zero=-100))
    for act in ("NONE", "TANH"):
        with pytest.raises(UnsupportedError, match="fused_activation_function"):
            load_tflite(integer_svdf(2, 3, act))


INTEGER_LSTM: dict[str, dict[str, Any]] = {
    "plain": {},
    "coupled": {"coupled": True, "cell": -12},
    "time first": {"time_major": 1, "cell": -15},
    "peepholes": {"peepholes": True},
    "coupled with peepholes": {"coupled": True, "peepholes": True, "cell": -13},
    "projected": {"projected": False, "cell": -9},
    "projected with a bias and bounds": {"projected": True, "cell_clip": 0.4, "proj_clip": 0.3},
    "one step": {"single": True, "peepholes": True, "cell_clip": 0.5},
    "one step, coupled": {"single": True, "coupled": True, "projected": True, "cell": -12},
}
HYBRID_LSTM: dict[str, dict[str, Any]] = {
    "plain": {},
    "coupled, time first": {"coupled": True, "time_major": 1, "cell_clip": 0.4},
    "peepholes": {"peepholes": True},
    "projected": {"projected": False, "proj_clip": 0.2},
    "asymmetric": {"projected": True, "asymmetric_quantize_inputs": 1},
    "one step": {"single": True, "coupled": True, "peepholes": True},
    "normalized": {"layer_norm": True, "peepholes": True},
    "normalized, coupled": {"layer_norm": True, "coupled": True, "projected": True},
    "one step, asymmetric": {"single": True, "asymmetric_quantize_inputs": 1},
}


@pytest.mark.parametrize("name", INTEGER_LSTM)
def test_lstm_of_integers_has_litert_s_bits_call_after_call(name: str) -> None:
    """LiteRT begins with the state's zero point, not with the byte 0."""
    made, major = integer_lstm(**INTEGER_LSTM[name]), bool(INTEGER_LSTM[name].get("time_major"))
    shape = (STEPS, BATCH, SIZE) if major else (BATCH, STEPS, SIZE)
    shape = (BATCH, SIZE) if INTEGER_LSTM[name].get("single") else shape
    rng = np.random.default_rng(49)
    calls = [{"x0": rng.integers(-128, 128, shape).astype(np.int8)} for _ in range(3)]
    exe = verax.compile(load_tflite(made), threads=1, require_native=True)
    for inputs, given in zip(calls, litert_calls(made, calls), strict=True):
        assert np.array_equal(exe.run(inputs)["y"], given["y"])
        assert len(np.unique(given["y"])) > 10


@pytest.mark.parametrize("name", HYBRID_LSTM)
def test_lstm_with_weights_of_bytes_is_litert_s_call_after_call(name: str) -> None:
    made = hybrid_lstm(**HYBRID_LSTM[name])
    loaded = load_tflite(made)
    rng = np.random.default_rng(51)
    calls = [
        {"x0": rng.standard_normal(loaded.inputs["x0"].dims).astype(np.float32)} for _ in range(3)
    ]
    exe = verax.compile(loaded, threads=1, require_native=True)
    for inputs, expected in zip(calls, litert_calls(made, calls), strict=True):
        # A code of the state that rounds the other way would be 1e-4 off.
        np.testing.assert_allclose(exe.run(inputs)["y"], expected["y"], rtol=0, atol=2e-6)
        assert len(np.unique(expected["y"])) > 10


HYBRID_BIDIRECTIONAL: dict[str, dict[str, Any]] = {
    "merged": {"merged": 1, "time_major": 1, "cell_clip": 0.5},
    "apart": {"merged": 0, "time_major": 0, "proj_clip": 0.3},
    "second input": {"merged": 0, "time_major": 1, "auxiliary": True},
    "one row, asymmetric": {"merged": 1, "time_major": 0, "asymmetric_quantize_inputs": 1},
}


@pytest.mark.parametrize("name", HYBRID_BIDIRECTIONAL)
def test_both_directions_with_weights_of_bytes_are_litert_s_call_after_call(name: str) -> None:
    made = hybrid_bidirectional_lstm(**HYBRID_BIDIRECTIONAL[name])
    loaded, rng = load_tflite(made), np.random.default_rng(52)
    calls = [
        {v: rng.standard_normal(t.dims).astype(np.float32) for v, t in loaded.inputs.items()}
        for _ in range(3)
    ]
    exe = verax.compile(loaded, threads=1, require_native=True)
    for inputs, expected in zip(calls, litert_calls(made, calls), strict=True):
        for output, array in exe.run(inputs).items():
            np.testing.assert_allclose(array, expected[output], rtol=0, atol=2e-6)
            assert len(np.unique(array)) > 10


def test_bounds_of_an_integer_lstm_change_what_it_gives() -> None:
    x = {"x0": np.random.default_rng(50).integers(-128, 128, (BATCH, STEPS, SIZE)).astype(np.int8)}
    options: list[dict[str, float]] = [{}, {"cell_clip": 0.4}, {"proj_clip": 0.3}]
    models = [load_tflite(integer_lstm(projected=True, **given)) for given in options]
    found = [verax.reference(m, x)["y"] for m in models]
    assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])


def test_what_an_integer_lstm_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="layer normalisation inside of a quantised cell"):
        load_tflite(integer_lstm(layer_norm=True))
    with pytest.raises(UnsupportedError, match="fused_activation_function"):
        load_tflite(integer_lstm(fused_activation_function="RELU"))
    with pytest.raises(UnsupportedError, match="LiteRT misreads the cell"):
        load_tflite(integer_lstm(projected=True, peepholes=True))
