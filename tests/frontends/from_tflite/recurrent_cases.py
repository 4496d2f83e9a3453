"""One small model per recurrent operator and option, for the tests of this folder. Their state lies
in variable tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.frontends.from_tflite.tflite_writer import (
    Case,
    Op,
    T,
    const,
    model,
    one,
    several,
    variable,
)

STEPS, BATCH, SIZE, AUX = 5, 3, 4, 2
RNG_SEED = 47


class Operands:
    """Seeded operands of recurrent operators."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(RNG_SEED)

    def weights(self, *shape: int) -> T:
        return const(self.rng.uniform(-0.8, 0.8, shape).astype(np.float32))

    def gates(self, *shape: int, coupled: bool = False) -> list[T | None]:
        """Of the input, forget, cell and output gate; without the first when it is coupled."""
        return [None if coupled and g == 0 else self.weights(*shape) for g in range(4)]

    def lstm(
        self, units: int, outputs: int, *, coupled: bool = False, peepholes: bool = False,
        projected: bool | None = None,
    ) -> list[T | None]:  # fmt: skip
        """Of one direction. projected: with a projection, True: that has a bias."""
        holes = [None if coupled and g == 0 else self.weights(units) for g in range(3)]
        return [
            *self.gates(units, SIZE, coupled=coupled),
            *self.gates(units, outputs, coupled=coupled),
            *(holes if peepholes else [None] * 3),
            *self.gates(units, coupled=coupled),
            None if projected is None else self.weights(outputs, units),
            self.weights(outputs) if projected else None,
        ]


def sequence(time_major: bool, size: int = SIZE) -> T:
    return T((STEPS, BATCH, size) if time_major else (BATCH, STEPS, size))


def recurrent_cases() -> Iterator[Case]:
    """(label, model) in a fixed order."""
    made = Operands()
    yield from _lstm(made)
    yield from _lstm_cells(made)
    yield from _bidirectional_lstm(made)
    yield from _rnn(made)
    yield from _svdf(made)
    yield "SVDF int8", integer_svdf(2, 3)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM int8", integer_lstm()
    yield "LSTM int8", integer_lstm(single=True)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM hybrid", hybrid_lstm(projected=True)
    yield "LSTM hybrid", hybrid_lstm(single=True, peepholes=True)
    yield "BIDIRECTIONAL_SEQUENCE_LSTM hybrid", hybrid_bidirectional_lstm(1, 1, cell_clip=0.7)
    yield "UNIDIRECTIONAL_SEQUENCE_LSTM normalized", normalized_lstm(peepholes=True, cell_clip=0.6)
    yield "LSTM normalized", normalized_lstm(single=True, coupled=True, projected=True)


def _states(*sizes: int) -> list[T | None]:
    return [variable((BATCH, size)) for size in sizes]


def _lstm(made: Operands) -> Iterator[Case]:
    forms: Sequence[tuple[str, dict[str, Any], dict[str, Any]]] = (
        ("", {}, {"fused_activation_function": "TANH"}),
        ("time_major", {}, {"time_major": 1, "fused_activation_function": "TANH"}),
        ("peepholes", {"peepholes": True}, {"fused_activation_function": "TANH"}),
        ("coupled", {"coupled": True}, {"fused_activation_function": "TANH", "cell_clip": 0.3}),
        (
            "coupled peepholes",
            {"coupled": True, "peepholes": True},
            {"fused_activation_function": "RELU6"},
        ),
        ("projection", {"projected": False}, {"fused_activation_function": "RELU_N1_TO_1"}),
        (
            "projection clipped",
            {"projected": True, "peepholes": True},
            {"fused_activation_function": "TANH", "cell_clip": 0.5, "proj_clip": 0.25},
        ),
        ("relu", {}, {"fused_activation_function": "RELU", "proj_clip": 0.5}),
    )
    for label, weights, options in forms:
        outputs = 6 if weights.get("projected") is not None else 7
        operands = [
            sequence(bool(options.get("time_major"))),
            *made.lstm(7, outputs, **weights),
            *_states(outputs, 7),
        ]
        y = sequence(bool(options.get("time_major")), outputs)
        yield f"UNIDIRECTIONAL_SEQUENCE_LSTM {label}".strip(), one(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, y, **options
        )  # fmt: skip


def _lstm_cells(made: Operands) -> Iterator[Case]:
    operands = [T((BATCH, SIZE)), *made.lstm(7, 6, projected=True), *_states(6, 7)]
    yield "LSTM", one(
        "LSTM", operands, T((BATCH, 6)), fused_activation_function="TANH", cell_clip=0.7,
        proj_clip=0.5,
    )  # fmt: skip
    weights, bias = made.weights(4 * 5, SIZE + 5), made.weights(4 * 5)
    state = [variable((BATCH, 5)) for _ in range(2)]
    tensors = [T((BATCH, SIZE), name="x0"), state[0], weights, bias, state[1]]
    tensors += [T((BATCH, 5), name="y"), T((BATCH, 5), name="cell")]
    tensors += [T((BATCH, SIZE + 5)), T((BATCH, 4 * 5))]
    options = {"kernel_type": "BASIC", "fused_activation_function": "TANH"}
    basic = Op("LSTM", range(5), range(5, 9), options, 2)
    yield "LSTM basic", model(tensors, [basic], [0], [5, 6])


def _bidirectional_lstm(made: Operands) -> Iterator[Case]:
    for label, joins, auxiliary, merged, time_major in (
        ("", False, False, 1, 1),
        ("apart", False, False, 0, 0),
        ("cross-linked", True, True, 1, 1),
        ("second input", False, True, 0, 1),
    ):
        aux = made.gates(7, SIZE) + made.gates(7, SIZE) if joins else [None] * 8
        operands = [
            sequence(bool(time_major)),
            *made.lstm(7, 3, projected=True),
            *made.lstm(7, 3, projected=True, peepholes=True),
            *_states(3, 7, 3, 7),
            sequence(bool(time_major)) if auxiliary else None,
            *aux,
        ]
        results = [sequence(bool(time_major), n) for n in ([6] if merged else [3, 3])]
        yield f"BIDIRECTIONAL_SEQUENCE_LSTM {label}".strip(), several(
            "BIDIRECTIONAL_SEQUENCE_LSTM", operands, results, merge_outputs=merged,
            time_major=time_major, fused_activation_function="TANH", cell_clip=0.8, proj_clip=0.6,
        )  # fmt: skip


def _rnn(made: Operands) -> Iterator[Case]:
    for act in ("TANH", "RELU", "RELU6", "NONE"):
        weights = [made.weights(7, SIZE), made.weights(7, 7), made.weights(7)]
        yield f"RNN {act}", one(
            "RNN", [T((BATCH, SIZE)), *weights, *_states(7)], T((BATCH, 7)),
            fused_activation_function=act,
        )  # fmt: skip
    for time_major, act in ((0, "TANH"), (1, "RELU_N1_TO_1")):
        weights = [made.weights(7, SIZE), made.weights(7, 7), made.weights(7)]
        yield f"UNIDIRECTIONAL_SEQUENCE_RNN {time_major}", one(
            "UNIDIRECTIONAL_SEQUENCE_RNN", [sequence(bool(time_major)), *weights, *_states(7)],
            sequence(bool(time_major), 7), time_major=time_major, fused_activation_function=act,
        )  # fmt: skip
    for label, joins, auxiliary, merged, time_major in (
        ("", False, False, 1, 1),
        ("apart", False, False, 0, 0),
        ("cross-linked", True, True, 1, 0),
        ("second input", False, True, 1, 1),
    ):
        shape = (STEPS, BATCH, SIZE) if time_major else (BATCH, STEPS, AUX if joins else SIZE)
        operands: list[T | None] = [sequence(bool(time_major))]
        for units in (7, 5):
            weights = [made.weights(units, SIZE), made.weights(units, units), made.weights(units)]
            operands += [*weights, *_states(units)]
        operands.append(T(shape) if auxiliary else None)
        operands += [made.weights(7, AUX), made.weights(5, AUX)] if joins else [None, None]
        results = [sequence(bool(time_major), n) for n in ([12] if merged else [7, 5])]
        yield f"BIDIRECTIONAL_SEQUENCE_RNN {label}".strip(), several(
            "BIDIRECTIONAL_SEQUENCE_RNN", operands, results, merge_outputs=merged,
            time_major=time_major, fused_activation_function="TANH",
        )  # fmt: skip


def _svdf(made: Operands) -> Iterator[Case]:
    for rank, memory, act in ((2, 3, "RELU"), (1, 4, "TANH"), (3, 1, "NONE"), (2, 2, "RELU6")):
        weights: list[T | None] = [made.weights(6, SIZE), made.weights(6, memory)]
        bias = made.weights(6 // rank) if rank != 3 else None
        operands = [T((BATCH, SIZE)), *weights, bias, *_states(6 * memory)]
        yield f"SVDF {rank} {memory}", one(
            "SVDF", operands, T((BATCH, 6 // rank)), rank=rank, fused_activation_function=act
        )  # fmt: skip


def integer_svdf(
    rank: int, memory: int, act: str = "RELU", zero: int = -128, bias: bool = True, size: int = SIZE
) -> bytes:
    """SVDF of bytes, with 16-bit state, as converters make it full-integer."""
    rng = np.random.default_rng([RNG_SEED, rank, memory])

    def integers(dtype: str, scale: float, *shape: int) -> T:
        most = np.iinfo(dtype).max
        return const(rng.integers(-most, most + 1, shape).astype(dtype), [scale], [0])

    state = T((BATCH, 6 * memory), "int16", None, [2.0**-11], [0], is_variable=True)
    sums = rng.integers(-40000, 40000, 6 // rank).astype(np.int32)
    operands = [
        T((BATCH, size), "int8", None, [0.037], [-5]),
        integers("int8", 0.0071, 6, size),
        integers("int16", 3.1e-5, 6, memory),
        const(sums, [2.0**-11 * 3.1e-5], [0]) if bias else None,
        state,
    ]
    y = T((BATCH, 6 // rank), "int8", None, [0.043], [zero])
    return one("SVDF", operands, y, rank=rank, fused_activation_function=act)


def integer_lstm(
    coupled: bool = False, projected: bool | None = None, cell: int = -11, time_major: int = 0,
    peepholes: bool = False, layer_norm: bool = False, single: bool = False, **options: Any,
) -> bytes:  # fmt: skip
    """LSTM of bytes with a 16-bit cell, as converters make it full-integer. projected: with a
    projection, True: that has a bias. single: the operator of one step."""
    rng = np.random.default_rng([RNG_SEED, coupled, projected is not None, -cell])
    units, outputs = 7, 7 if projected is None else 6

    def integers(dtype: str, scale: float, *shape: int) -> T:
        most = 127 if dtype == "int8" else 30000
        return const(rng.integers(-most, most + 1, shape).astype(dtype), [scale], [0])

    def gates(scale: float, *shape: int, dtype: str = "int8") -> list[T | None]:
        scales = [scale * (1 + 0.13 * g) for g in range(4)]
        made = [integers(dtype, s, *shape) for s in scales]
        return [None if coupled and g == 0 else t for g, t in enumerate(made)]

    shape: tuple[int, ...] = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    shape = (BATCH,) if single else shape
    state = T((BATCH, outputs), "int8", None, [0.0083], [-7], is_variable=True)
    memory = T((BATCH, units), "int16", None, [2.0**cell], [0], is_variable=True)
    hidden = ([0.0083], [-7]) if projected is None else ([0.0079], [4])
    operands = [
        T((*shape, SIZE), "int8", None, [0.029], [-5], name="x0"),
        *gates(0.0061, units, SIZE),
        *gates(0.0083, units, outputs),
        *(gates(2.0**-15, units, dtype="int16")[:3] if peepholes else [None] * 3),
        *gates(0.029 * 0.0061, units, dtype="int32"),
        None if projected is None else integers("int8", 0.0052, outputs, units),
        integers("int32", 0.0052 * 0.0079, outputs) if projected else None,
        state,
        memory,
    ]
    if layer_norm:
        operands += gates(2.0**-10, units, dtype="int16")
    for bias in operands[12:16]:
        if bias is not None and bias.data is not None:
            bias.data //= 16
    y = T((*shape, outputs), "int8", None, [0.0083], [-7], name="y")
    words = [T((1,), "int16", None, [2.0**-12], [0]) for _ in range(4)]
    inner = [*words, T((1,), "int8", None, *hidden)]
    tensors = [t for t in operands if t is not None]
    where = iter(range(len(tensors)))
    indices = [-1 if t is None else next(where) for t in operands]
    first = len(tensors) + 1
    fields = {"fused_activation_function": "TANH", **options}
    if not single:
        fields["time_major"] = time_major
    kind = "LSTM" if single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    op = Op(kind, indices, [first - 1], fields, 4, inner=range(first, first + 5))
    return model([*tensors, y, *inner], [op], [0], [first - 1])


def hybrid_lstm(
    coupled: bool = False, projected: bool | None = None, time_major: int = 0,
    peepholes: bool = False, layer_norm: bool = False, single: bool = False, **options: Any,
) -> bytes:  # fmt: skip
    """LSTM of float32 with weights of bytes, as dynamic-range quantization makes it; arguments as
    those of `integer_lstm`."""
    units, outputs = 7, 7 if projected is None else 6
    rng = np.random.default_rng([RNG_SEED, 1, coupled, projected is not None, peepholes])
    shape: tuple[int, ...] = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    shape = (BATCH,) if single else shape
    operands = [
        T((*shape, SIZE), name="x0"),
        *_hybrid_weights(rng, units, outputs, coupled, projected, peepholes),
        *_states(outputs, units),
    ]
    if layer_norm:
        norms = [const(rng.uniform(0.5, 2, units).astype(np.float32)) for _ in range(4)]
        operands += [None if coupled and g == 0 else t for g, t in enumerate(norms)]
    fields = {"fused_activation_function": "TANH", **options}
    if not single:
        fields["time_major"] = time_major
    kind = "LSTM" if single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return one(kind, operands, T((*shape, outputs), name="y"), **fields)


def _hybrid_weights(
    rng: np.random.Generator, units: int, outputs: int, coupled: bool, projected: bool | None,
    peepholes: bool,
) -> list[T | None]:  # fmt: skip
    """Operands of one direction between the data and the states."""

    def codes(scale: float, *shape: int) -> T:
        return const(rng.integers(-127, 128, shape).astype("int8"), [scale], [0])

    def gates(scale: float, *shape: int) -> list[T | None]:
        made = [codes(scale * (1 + 0.13 * g), *shape) for g in range(4)]
        return [None if coupled and g == 0 else t for g, t in enumerate(made)]

    def floats(*shape: int) -> T:
        return const(rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    return [
        *gates(0.0061, units, SIZE),
        *gates(0.0083, units, outputs),
        *(gates(0.0047, units)[:3] if peepholes else [None] * 3),
        *[None if coupled and g == 0 else floats(units) for g in range(4)],
        None if projected is None else codes(0.0052, outputs, units),
        floats(outputs) if projected else None,
    ]


def hybrid_bidirectional_lstm(
    merged: int, time_major: int, *, auxiliary: bool = False, **options: Any
) -> bytes:
    """Both directions with weights of bytes; the second one has peepholes and a projection."""
    rng = np.random.default_rng([RNG_SEED, 2, merged, time_major, auxiliary])
    batch_first = 1 if merged and not time_major else BATCH
    shape = (STEPS, BATCH) if time_major else (batch_first, STEPS)
    batch = BATCH if time_major else batch_first
    operands = [
        T((*shape, SIZE), name="x0"),
        *_hybrid_weights(rng, 7, 3, False, True, False),
        *_hybrid_weights(rng, 7, 3, False, True, True),
        *[variable((batch, size)) for size in (3, 7, 3, 7)],
        T((*shape, SIZE), name="x1") if auxiliary else None,
        *[None] * 8,
    ]
    results = [T((*shape, size), name=f"y{i}") for i, size in enumerate([6] if merged else [3, 3])]
    return several(
        "BIDIRECTIONAL_SEQUENCE_LSTM", operands, results, merge_outputs=merged,
        time_major=time_major, fused_activation_function="TANH", **options,
    )  # fmt: skip


def normalized_lstm(
    coupled: bool = False, projected: bool | None = None, peepholes: bool = False,
    single: bool = False, time_major: int = 0, **options: Any,
) -> bytes:  # fmt: skip
    """LSTM of floats whose gates are normalized; arguments as those of `integer_lstm`."""
    made, outputs = Operands(), 7 if projected is None else 6
    x = T((BATCH, SIZE)) if single else sequence(bool(time_major))
    operands = [
        x,
        *made.lstm(7, outputs, coupled=coupled, peepholes=peepholes, projected=projected),
        *_states(outputs, 7),
        *made.gates(7, coupled=coupled),
    ]
    fields = {"fused_activation_function": "TANH", **options}
    if not single:
        fields["time_major"] = time_major
    kind = "LSTM" if single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return one(kind, operands, T((*x.shape[:-1], outputs)), **fields)
