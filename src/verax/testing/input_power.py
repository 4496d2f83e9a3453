"""Whether inputs could show a mistake: constants, saturated outputs, nothing to compare.

Agreement on inputs of zeros proves nothing. Each reason says which input or output it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from verax.numerics import statistics as st

Outputs = Sequence[np.ndarray]


def constant_inputs(arrays: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Reasons for which inputs hide mistakes: a float input of several elements is one number."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fV" or array.size < 2:
            continue
        wide = array.astype(np.float64)
        if not np.isfinite(wide).all() and not np.isfinite(wide).any():
            yield f"input {name!r} holds no finite number"
        elif (wide == wide.flat[0]).all():
            value = wide.flat[0]
            words = "all zeros" if value == 0 else f"{value:g} everywhere"
            yield f"input {name!r} is {words}: what is read of it, and where, could not show"


def saturated_outputs(
    expected: Outputs,
    arrays: Mapping[str, np.ndarray],
    with_input: Callable[[str, np.ndarray], Outputs],
    names: Sequence[str],
    kinds: Sequence[np.dtype],
    seed: int,
) -> Iterator[str]:
    """Reasons for which outputs hide mistakes: they are empty, or do not react to the inputs.

    expected: float64 outputs. with_input: the outputs with one float input replaced, in float64.
    kinds: types that the outputs are given in, in which a reaction has to be another number.
    """
    random = np.random.default_rng(seed)
    sizes = sum(e.size for e in expected)
    if not sizes:
        yield "the outputs are empty: nothing was compared"
        return
    reacting = [np.zeros(e.shape, bool) for e in expected]
    floats = {n: a for n, a in arrays.items() if a.dtype.kind in "fV" and a.size}
    for name, array in floats.items():
        wide = array.astype(np.float64)
        spread = np.nanstd(np.where(np.isfinite(wide), wide, np.nan))
        noise = random.standard_normal(wide.shape) * st.REACTION
        with np.errstate(all="ignore"):
            outputs = with_input(name, wide * (1 + noise) + noise * (spread if spread > 0 else 1.0))
        seen = False
        for i, (before, after) in enumerate(zip(expected, outputs)):
            if before.shape != after.shape:
                seen = True
                continue
            differs = _stored(before, kinds[i]) != _stored(after, kinds[i])
            reacting[i] |= differs
            seen |= bool(differs.any())
        if not seen and all(e.dtype.kind == "f" for e in expected):
            yield f"no output reacts to input {name!r}: it is saturated, or drowned by another"
    if not floats:
        return
    for name, before, mask in zip(names, expected, reacting):
        if before.dtype.kind != "f" or not before.size or mask.mean() >= st.REACTING:
            continue
        value, count = _commonest(before)
        yield (
            f"output {name!r} is saturated: {count} of {before.size} elements are {value:g}, and "
            f"{1 - mask.mean():.0%} do not react to the inputs"
        )


def _stored(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        rounded = x.astype(kind) if x.dtype.kind == "f" and kind.kind in "fV" else x
    return np.nan_to_num(rounded.astype(np.float64))


def _commonest(x: np.ndarray) -> tuple[float, int]:
    values, counts = np.unique(x, return_counts=True)
    i = int(counts.argmax())
    return float(values[i]), int(counts[i])
