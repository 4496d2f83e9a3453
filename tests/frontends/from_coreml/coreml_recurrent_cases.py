"""Cases of CoreML's recurrent layers, their equations written out step by step in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from coreml_models import Case, setting, weights

STEPS, BATCH, INPUT, SIZE = 4, 2, 3, 5
X = (STEPS, BATCH, INPUT, 1, 1)
STATE = (1, BATCH, SIZE, 1, 1)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
    "linear": lambda v: v,
    "ReLU": lambda v: np.maximum(v, 0),
    "scaledTanh": lambda v: 1.7159 * np.tanh(2 / 3 * v),
    "sigmoidHard": lambda v: np.clip(0.2 * v + 0.5, 0, 1),
}
FLOAT32_NUMBERS = {
    "scaledTanh": lambda v: float(np.float32(1.7159)) * np.tanh(float(np.float32(2 / 3)) * v),
    "sigmoidHard": lambda v: np.clip(float(np.float32(0.2)) * v + 0.5, 0, 1),
}
FUNCTIONS |= FLOAT32_NUMBERS


def held(v: np.ndarray) -> np.ndarray:
    return np.clip(v, -50, 50)


def matrices(gates: tuple[str, ...], seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """W, R, b and p of each gate by name."""
    found = {}
    for i, gate in enumerate(gates):
        for j, (kind, shape) in enumerate(
            (("W", (SIZE, INPUT)), ("R", (SIZE, SIZE)), ("b", (SIZE,)), ("p", (SIZE,)))
        ):
            found[kind + gate] = scale * weights(*shape, seed=seed + 10 * i + j)
    return found


def run(step, x, states, *, sequence, reverse):
    """[S or 1, B, H, 1, 1] in the order of reading, and the last states."""
    order = x[::-1] if reverse else x
    outputs = []
    for part in order[..., 0, 0].astype(float):
        states = step(part, *states)
        outputs.append(states[0])
    outputs = outputs if sequence else outputs[-1:]
    return np.stack(outputs)[..., None, None], [s[None, ..., None, None] for s in states]


def simple() -> Iterator[Case]:
    m = matrices(("",), 1)
    for label, kind, bias, sequence, reverse in (
        ("tanh", "tanh", True, True, False),
        ("reverse", "sigmoid", False, True, True),
        ("last", "ReLU", True, False, True),
        ("linear", "linear", True, True, False),
        ("scaled", "scaledTanh", True, True, False),
        ("hard", "sigmoidHard", True, True, False),
    ):
        fields = {"weightMatrix": m["W"], "recursionMatrix": m["R"], f"activation__{kind}": None}
        fields |= {"hasBiasVector": True, "biasVector": m["b"]} if bias else {}

        def step(x, y, f=FUNCTIONS[kind], b=bias):
            return (f(held(x @ m["W"].T + y @ m["R"].T + (m["b"] if b else 0))),)

        def meaning(x, h, step=step, s=sequence, r=reverse):
            y, states = run(step, x, [h[0, ..., 0, 0].astype(float)], sequence=s, reverse=r)
            return [y, *states]

        yield Case(
            "simpleRecurrent", (X, STATE),
            setting(inputVectorSize=INPUT, outputVectorSize=SIZE, sequenceOutput=sequence,
                    reverseInput=reverse, **fields),
            meaning, label, outputs=2,
        )  # fmt: skip


def gru_step(m, *, bias):
    sigmoid = FUNCTIONS["sigmoid"]

    def step(x, y):
        def total(g, state):
            return held(x @ m["W" + g].T + state @ m["R" + g].T + (m["b" + g] if bias else 0))

        z, r = sigmoid(total("z", y)), sigmoid(total("r", y))
        return ((1 - z) * np.tanh(total("o", y * r)) + z * y,)

    return step


def gated() -> Iterator[Case]:
    names = {"z": "updateGate", "r": "resetGate", "o": "outputGate"}
    m = matrices(tuple(names), 2)
    kinds = {"W": "WeightMatrix", "R": "RecursionMatrix", "b": "BiasVector"}
    for label, bias, sequence, reverse in (
        ("all", True, True, False), ("reverse", False, True, True), ("last", True, False, False),
    ):  # fmt: skip
        fields = {names[g] + kinds[k]: m[k + g] for g in names for k in kinds if bias or k != "b"}
        step = gru_step(m, bias=bias)

        def meaning(x, h, step=step, s=sequence, r=reverse):
            y, states = run(step, x, [h[0, ..., 0, 0].astype(float)], sequence=s, reverse=r)
            return [y, *states]

        def fill(params, fields=fields, b=bias, s=sequence, r=reverse):
            setting(inputVectorSize=INPUT, outputVectorSize=SIZE, hasBiasVectors=b,
                    sequenceOutput=s, reverseInput=r, **fields)(params)  # fmt: skip
            params.activations.add().sigmoid.SetInParent()
            params.activations.add().tanh.SetInParent()

        yield Case("gru", (X, STATE), fill, meaning, label, outputs=2)


GATES = {"i": "inputGate", "f": "forgetGate", "o": "outputGate", "z": "blockInput"}


def lstm_weights(m: dict[str, np.ndarray], *, bias: bool, peephole: bool) -> dict[str, Any]:
    kinds = {"W": "WeightMatrix", "R": "RecursionMatrix"}
    kinds |= {"b": "BiasVector"} if bias else {}
    fields = {GATES[g] + n: m[k + g] for g in GATES for k, n in kinds.items()}
    if peephole:
        fields |= {GATES[g] + "PeepholeVector": m["p" + g] for g in "ifo"}
    return fields


def lstm_step(m, *, bias, peephole, forget, coupled, limit, h):
    sigmoid = FUNCTIONS["sigmoid"]

    def step(x, y, c):
        def total(g, memory=None):
            v = x @ m["W" + g].T.astype(float) + y @ m["R" + g].T
            v = v + (m["b" + g] if bias else 0) + (1 if forget and g == "f" else 0)
            return held(v + (m["p" + g] * memory if peephole and memory is not None else 0))

        i, f = sigmoid(total("i", c)), sigmoid(total("f", c))
        z = np.tanh(total("z"))
        c = np.clip(c * (1 - i if coupled else f) + i * z, -limit, limit)
        return h(c) * sigmoid(total("o", c)), c

    return step


def unidirectional() -> Iterator[Case]:
    for label, bias, peephole, forget, coupled, limit, h, sequence, reverse in (
        ("all", True, True, True, False, 0.375, "tanh", True, False),
        ("reverse", False, False, True, False, 50, "linear", True, True),
        ("last", True, False, False, True, 50, "tanh", False, False),
        ("plain", True, False, False, False, 50, "tanh", True, False),
    ):
        m = matrices(tuple(GATES), 3)
        form = {"bias": bias, "peephole": peephole}

        def meaning(x, y, c, form=form, m=m, f=forget, k=coupled, n=limit, h=h, s=sequence,
                    r=reverse):  # fmt: skip
            step = lstm_step(m, **form, forget=f, coupled=k, limit=n, h=FUNCTIONS[h])
            start = [v[0, ..., 0, 0].astype(float) for v in (y, c)]
            found, states = run(step, x, start, sequence=s, reverse=r)
            return [found, *states]

        def fill(params, form=form, m=m, f=forget, k=coupled, n=limit, h=h, s=sequence, r=reverse):
            setting(inputVectorSize=INPUT, outputVectorSize=SIZE, reverseInput=r)(params)
            setting(sequenceOutput=s, hasBiasVectors=form["bias"], forgetBias=f,
                    hasPeepholeVectors=form["peephole"], coupledInputAndForgetGate=k,
                    cellClipThreshold=0.375 if n == 0.375 else 0)(params.params)  # fmt: skip
            setting(**lstm_weights(m, **form))(params.weightParams)
            for kind in ("sigmoid", "tanh", h):
                getattr(params.activations.add(), kind).SetInParent()

        yield Case("uniDirectionalLSTM", (X, STATE, STATE), fill, meaning, label, outputs=3)


def bidirectional() -> Iterator[Case]:
    ahead, back = matrices(tuple(GATES), 3), matrices(tuple(GATES), 77)
    form = {"bias": True, "peephole": True}
    for sequence in (True, False):

        def meaning(x, y, c, y2, c2, s=sequence):
            parts, states = [], []
            for m, start, reverse in ((ahead, (y, c), False), (back, (y2, c2), True)):
                step = lstm_step(m, **form, forget=False, coupled=False, limit=50, h=np.tanh)
                start = [v[0, ..., 0, 0].astype(float) for v in start]
                found, last = run(step, x, start, sequence=s, reverse=reverse)
                parts.append(found[::-1] if reverse else found)
                states += last
            return [np.concatenate(parts, 2), *states]

        def fill(params, s=sequence):
            setting(inputVectorSize=INPUT, outputVectorSize=SIZE)(params)
            setting(sequenceOutput=s, hasBiasVectors=True, hasPeepholeVectors=True)(params.params)
            for m in (ahead, back):
                setting(**lstm_weights(m, **form))(params.weightParams.add())
            for activations in (params.activationsForwardLSTM, params.activationsBackwardLSTM):
                for kind in ("sigmoid", "tanh", "tanh"):
                    getattr(activations.add(), kind).SetInParent()

        yield Case("biDirectionalLSTM", (X, *[STATE] * 4), fill, meaning, str(sequence), outputs=5)


def recurrent() -> Iterator[Case]:
    yield from simple()
    yield from gated()
    yield from unidirectional()
    yield from bidirectional()
