"""Cases of ML program operations over sequences, their equations written out in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from coreml_models import weights
from coreml_operations import Case
from coreml_recurrent_cases import FUNCTIONS

STEPS, BATCH, INPUT, SIZE = 4, 2, 3, 5
X, STATE, STATES = (STEPS, BATCH, INPUT), (BATCH, SIZE), (BATCH, 2 * SIZE)
NAMES = {"sigmoid": "sigmoid", "tanh": "tanh", "linear": "linear", "relu": "ReLU",
         "scaled_tanh": "scaledTanh", "hard_sigmoid": "sigmoidHard"}  # fmt: skip


def numbers(gates: int, seed: int, suffix: str = "") -> dict[str, np.ndarray]:
    """The constants of a layer, as its arguments."""
    return {
        f"weight_ih{suffix}": weights(gates * SIZE, INPUT, seed=seed),
        f"weight_hh{suffix}": weights(gates * SIZE, SIZE, seed=seed + 1),
        f"bias{suffix}": weights(gates * SIZE, seed=seed + 2),
    }


def run(step, x, states, *, sequence: bool, reverse: bool):
    """[S or 1, B, H] in the order of reading, and the last states."""
    outputs = []
    for part in x[::-1] if reverse else x:
        states = step(part, *states)
        outputs.append(states[0])
    return np.stack(outputs if sequence else outputs[-1:]), list(states)


def preactivation(m, x, h, suffix=""):
    parts = [m[f"{n}{suffix}"].astype(float) for n in ("weight_ih", "weight_hh")]
    return x @ parts[0].T + h @ parts[1].T + m.get(f"bias{suffix}", np.zeros(1)).astype(float)


FORM = {"x": "%x0", "initial_h": "%x1"}


def simple() -> Iterator[Case]:
    for activation, sequence, reverse in (
        ("relu", True, False), ("tanh", True, True), ("scaled_tanh", False, False),
        ("hard_sigmoid", True, False), ("linear", True, False), ("sigmoid", True, False),
    ):  # fmt: skip
        m = numbers(1, 3)
        if activation == "tanh":
            del m["bias"]

        def meaning(x, h, m=m, f=FUNCTIONS[NAMES[activation]], s=sequence, r=reverse):
            y, states = run(lambda p, v: (f(preactivation(m, p, v)),), x, [h], sequence=s,
                            reverse=r)  # fmt: skip
            return [y, *states]

        yield Case(
            "rnn", (X, STATE),
            {**FORM, **m, "output_sequence": sequence, "activation": activation,
             "direction": "reverse" if reverse else "forward"},
            meaning, activation, ("float32",) * 2,
        )  # fmt: skip


def gru_step(m, f, g, more):
    def step(x, h):
        wide = [m[n].astype(float) for n in ("weight_ih", "weight_hh")]
        bias = m.get("bias", np.zeros(3 * SIZE)).astype(float) + more
        parts = [(w[k * SIZE : (k + 1) * SIZE].T, bias[k * SIZE : (k + 1) * SIZE])
                 for w in wide for k in range(3)]  # fmt: skip

        def total(k, state):
            return x @ parts[k][0] + state @ parts[3 + k][0] + parts[k][1]

        r, z = f(total(0, h)), f(total(2, h))
        return ((1 - z) * g(total(1, h * r)) + z * h,)

    return step


def gated() -> Iterator[Case]:
    more = weights(3 * SIZE, seed=77)
    for label, sequence, reverse, options, opset in (
        ("all", True, False, {}, 5),
        ("reverse", True, True, {"activation": "relu", "recurrent_activation": "tanh"}, 5),
        ("last", False, False, {}, 5),
        ("input bias", True, False, {"input_bias": more, "reset_after": False}, 8),
    ):
        m = numbers(3, 5)
        if label == "last":
            del m["bias"]
        names = (options.get("recurrent_activation", "sigmoid"), options.get("activation", "tanh"))
        step = gru_step(m, *(FUNCTIONS[NAMES[n]] for n in names), options.get("input_bias", 0.0))  # type: ignore[call-arg]

        def meaning(x, h, step=step, s=sequence, r=reverse):
            y, states = run(step, x, [h], sequence=s, reverse=r)
            return [y, *states]

        yield Case(
            "gru", (X, STATE),
            {**FORM, **m, **options, "output_sequence": sequence,
             "direction": "reverse" if reverse else "forward"},
            meaning, label, ("float32",) * 2, opset,
        )  # fmt: skip


def lstm_step(m, suffix="", *, clip=np.inf, names=("sigmoid", "tanh", "tanh")):
    f, g, last = (FUNCTIONS[NAMES[n]] for n in names)
    looks = np.split(m.get(f"peephole{suffix}", np.zeros(3 * SIZE)).astype(float), 3)

    def step(x, h, c):
        i, k, o, z = np.split(preactivation(m, x, h, suffix), 4, 1)
        i, k = f(i + looks[0] * c), f(k + looks[1] * c)
        c = np.clip(c * k + i * g(z), -clip, clip)
        return last(c) * f(o + looks[2] * c), c

    return step


def long() -> Iterator[Case]:
    peephole = weights(3 * SIZE, seed=41)
    form = {**FORM, "initial_c": "%x2"}
    for label, sequence, reverse, more, step in (
        ("plain", True, False, {}, {}),
        ("peephole", True, True, {"peephole": peephole}, {}),
        ("last", False, False, {"clip": np.float32(0.375)}, {"clip": 0.375}),
        ("functions", True, False,
         {"recurrent_activation": "hard_sigmoid", "cell_activation": "relu",
          "activation": "scaled_tanh"},
         {"names": ("hard_sigmoid", "relu", "scaled_tanh")}),
    ):  # fmt: skip
        m = {**numbers(4, 7), **({"peephole": peephole} if "peephole" in more else {})}

        def meaning(x, h, c, m=m, s=sequence, r=reverse, form=step):
            y, states = run(lstm_step(m, **form), x, [h, c], sequence=s, reverse=r)
            return [y, *states]

        yield Case(
            "lstm", (X, STATE, STATE),
            {**form, **m, **more, "output_sequence": sequence,
             "direction": "reverse" if reverse else "forward"},
            meaning, label, ("float32",) * 3,
        )  # fmt: skip
    both = {**numbers(4, 7), **numbers(4, 27, "_back"), "peephole": peephole,
            "peephole_back": weights(3 * SIZE, seed=43)}  # fmt: skip
    for sequence in (True, False):

        def bidirectional(x, h, c, s=sequence):
            parts, states = [], []
            for k, suffix in enumerate(("", "_back")):
                start = [v[:, k * SIZE : (k + 1) * SIZE] for v in (h, c)]
                y, last = run(lstm_step(both, suffix), x, start, sequence=s, reverse=k == 1)
                parts.append(y[::-1] if k else y)
                states.append(last)
            return [np.concatenate(parts, 2),
                    *(np.concatenate(pair, 1) for pair in zip(*states))]  # fmt: skip

        yield Case(
            "lstm", (X, STATES, STATES),
            {**form, **both, "output_sequence": sequence, "direction": "bidirectional"},
            bidirectional, f"both {sequence}", ("float32",) * 3,
        )  # fmt: skip


def sequences() -> list[Case]:
    return [*simple(), *gated(), *long()]
