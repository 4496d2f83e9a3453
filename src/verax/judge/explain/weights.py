"""Recovers wrong weights from the error of the output.

The output of a convolution or a matrix product is linear in the weights, so its error is too:
e = dw X, with X the unfolded input. Few wrong weights are found one after the other, each the one
that explains most of what is left (orthogonal matching pursuit); many by least squares, when there
are enough positions. A correction is believed when it stands out of its own standard error and when
nothing but rounding is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import Suspect
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose

FEW = 4
"""Wrong weights of one output channel that are looked for one after the other."""
POSITIONS_PER_WEIGHT = 1.3
"""Positions per unknown weight from which least squares over all of them is worth anything."""
POSITIONS_PER_PICK = 4
"""Positions per picked weight below which a pick proves nothing."""
CHANNELS = 8
"""Output channels that are looked at: those with the largest errors."""
LARGEST = 1 << 23
"""Elements of an unfolded input that is still looked at."""
MOST_UNKNOWNS = 1500
"""Unknown weights of a channel that least squares is asked for."""
LISTED = 6
"""Weights that the sentences list."""
BIAS = -1
"""Column of the bias."""


@dataclass(frozen=True)
class WrongWeight:
    """A wrong weight of the subject. index: in the weight tensor (of the bias: in the bias);
    expected: its value; off: difference of the subject's; certainty: off over its own standard
    error."""

    index: tuple[int, ...]
    is_bias: bool
    expected: float
    off: float
    certainty: float

    def __str__(self) -> str:
        label = f"bias of channel {self.index[0]}" if self.is_bias else f"weight {self.index}"
        return f"{label}: off by {self.off:.3g} ({self.expected + self.off:.7g} instead of " \
            f"{self.expected:.7g})"  # fmt: skip


@dataclass(frozen=True)
class LinearChannel:
    """One output channel as a linear function of its weights.

    columns [positions, weights]: what each weight is multiplied by; indices: their places in the
    weight tensor; error, sigma: of the channel, [positions].
    """

    channel: int
    columns: np.ndarray
    indices: np.ndarray
    error: np.ndarray
    sigma: np.ndarray


def weights(suspect: Suspect) -> tuple[str, ...]:
    """Sentences on wrong weights or biases; empty when they do not explain the error."""
    wrong = wrong_weights(suspect)
    if not wrong:
        return ()
    listed = tuple(str(w) for w in wrong[:LISTED])
    more = len(wrong) - LISTED
    return (*listed, f"{more} more weights are wrong") if more > 0 else listed


def wrong_weights(suspect: Suspect) -> tuple[WrongWeight, ...]:
    """The weights whose correction leaves nothing but rounding, the most certain first.

    Looks at the output channels with the largest errors; empty when one of them cannot be
    explained so, when the operator is not linear in weights, or when there is too little to go by.
    """
    rounding = suspect.meaning.roundings[suspect.output]
    actual, expected = suspect.wide, suspect.expected
    if rounding is None or actual.shape != expected.shape or not np.isfinite(actual).all():
        return ()
    wrong: list[WrongWeight] = []
    for channel in _channels(suspect, actual - expected, rounding.sigma):
        linear = _linear(suspect, channel, rounding.sigma)
        if linear is None:
            return ()
        corrections = _sparse(linear) or _dense(linear)
        if not corrections:
            return ()
        wrong += (_named(suspect, linear, *c) for c in corrections)
    return tuple(sorted(wrong, key=lambda w: -w.certainty))


def _channel_axis(suspect: Suspect) -> int | None:
    op = suspect.op
    if isinstance(op, Conv | ConvTranspose | Gemm):
        return 1
    if isinstance(op, MatMul) and suspect.inputs[1].ndim == 2 and suspect.x.ndim >= 2:
        return suspect.actual.ndim - 1
    return None


def _channels(suspect: Suspect, error: np.ndarray, sigma: np.ndarray) -> list[int]:
    """Output channels whose errors are beyond rounding, the worst first."""
    axis = _channel_axis(suspect)
    if axis is None:
        return []
    z = np.moveaxis(st.standardised(error, sigma + TINY), axis, 0).reshape(error.shape[axis], -1)
    worst = [st.group_test(row).statistic for row in z]
    rms = np.sqrt((z * z).mean(axis=1)) / st.group_limit(z.shape[1])
    score = np.maximum(worst, rms)
    if not (score > st.ROUNDING_T).any():
        score = np.where(score == score.max(), np.inf, 0.0)  # the sum over channels told it
    return [int(c) for c in np.argsort(-score)[:CHANNELS] if score[c] > st.ROUNDING_T]


def _linear(suspect: Suspect, channel: int, sigma: np.ndarray) -> LinearChannel | None:
    op, axis = suspect.op, _channel_axis(suspect)
    assert axis is not None
    x, w = suspect.x.astype(np.float64), suspect.inputs[1]
    if isinstance(op, Conv | ConvTranspose):
        groups, outputs = op.groups, suspect.actual.shape[1]
        group, member = divmod(channel, outputs // groups)
        size = x.shape[1] // groups
        group_input = x[:, group * size : (group + 1) * size]
        kernel = w.shape[2:]
        if (
            group_input.shape[0]
            * int(np.prod(suspect.actual.shape[2:]))
            * size
            * int(np.prod(kernel))
            > LARGEST
        ):
            return None
        columns = _unfolded(suspect, group_input)
        taps = np.indices((size, *kernel)).reshape(1 + len(kernel), -1).T
        lead = np.full((len(taps), 1), channel if isinstance(op, Conv) else member)
        if isinstance(op, Conv):
            indices = np.hstack([lead, taps])
        else:
            indices = np.hstack([taps[:, :1] + group * size, lead, taps[:, 1:]])
    elif isinstance(op, Gemm):
        columns = op.alpha * (x.T if op.trans_a else x)
        k = np.arange(columns.shape[1])[:, None]
        channel_column = np.full_like(k, channel)
        indices = np.hstack([channel_column, k] if op.trans_b else [k, channel_column])
    else:
        columns = x.reshape(-1, x.shape[-1])
        k = np.arange(columns.shape[1])[:, None]
        indices = np.hstack([k, np.full_like(k, channel)])
    if columns.size > LARGEST:
        return None
    error = np.moveaxis(suspect.wide - suspect.expected, axis, 0)[channel].ravel()
    spread = np.moveaxis(sigma, axis, 0)[channel].ravel() + TINY
    return LinearChannel(channel, columns, indices, error, spread)


def _unfolded(suspect: Suspect, x: np.ndarray) -> np.ndarray:
    """[batch * output positions, channels * taps] of one group's input."""
    op, kinds = suspect.op, suspect.meaning.ev.inputs
    assert isinstance(op, Conv | ConvTranspose) and kinds[0] is not None and kinds[1] is not None
    windows = op.spatial(kinds[0], kinds[1])
    if isinstance(op, Conv):
        padded = windows.padded(x)
        taps = [padded.tap(position) for position in windows.positions()]
    else:
        shape = (*x.shape[:2], *windows.kernel_shape, *windows.output)
        spread = np.zeros(shape)
        for tap in windows.transposed.overlaps():
            index: Any = (slice(None), slice(None), *tap.position)
            spread[index][tap.input] = x[tap.output]
        taps = list(np.moveaxis(spread.reshape(*x.shape[:2], -1, *windows.output), 2, 0))
    stacked = np.stack(taps, axis=2)  # n, c, taps, *output
    ordered = np.moveaxis(stacked, (1, 2), (-2, -1))
    return ordered.reshape(-1, stacked.shape[1] * stacked.shape[2])


Correction = tuple[int, float, float]
"""Column (or BIAS), by how much it is off, and that over its standard error."""


def _scaled(linear: LinearChannel) -> tuple[np.ndarray, np.ndarray]:
    """Columns with the bias's at the end, and the error, in units of sigma."""
    columns = np.hstack([linear.columns, np.ones((len(linear.error), 1))])
    return columns / linear.sigma[:, None], linear.error / linear.sigma


def _is_rounding(left: np.ndarray, unknowns: int) -> bool:
    """Whether what is left, in units of sigma, is no more than rounding."""
    freedom = len(left) - unknowns
    if freedom <= 0:
        return False
    rms = float(np.sqrt((left @ left) / freedom))
    return rms <= st.group_limit(len(left)) and float(np.abs(left).max()) <= st.group_limit(1)


def _sparse(linear: LinearChannel) -> list[Correction]:
    columns, error = _scaled(linear)
    norms = np.linalg.norm(columns, axis=0)
    use = norms > 0
    selected: list[int] = []
    left = error
    before = float(np.linalg.norm(error))
    while len(selected) < FEW and len(error) > POSITIONS_PER_PICK * (len(selected) + 1):
        score = np.where(use, np.abs(columns.T @ left) / np.where(use, norms, 1), 0)
        score[selected] = 0
        selected.append(int(np.argmax(score)))
        selected_columns = columns[:, selected]
        values = np.linalg.lstsq(selected_columns, error, rcond=None)[0]
        left = error - selected_columns @ values
        if _is_rounding(left, len(selected)):
            break
    else:
        return []
    if float(np.linalg.norm(left)) > st.EXPLAINED * before:
        return []
    return _certain(linear, selected_columns, np.array(selected), values)


def _dense(linear: LinearChannel) -> list[Correction]:
    columns, error = _scaled(linear)
    unknowns = columns.shape[1]
    if len(error) <= POSITIONS_PER_WEIGHT * unknowns or unknowns > MOST_UNKNOWNS:
        return []
    values, _, rank, _ = np.linalg.lstsq(columns, error, rcond=None)
    left = error - columns @ values
    if rank < unknowns or not _is_rounding(left, unknowns):
        return []
    if float(np.linalg.norm(left)) > st.EXPLAINED * float(np.linalg.norm(error)):
        return []
    return _certain(linear, columns, np.arange(unknowns), values)


def _certain(
    linear: LinearChannel, columns: np.ndarray, selected: np.ndarray, values: np.ndarray
) -> list[Correction]:
    """The corrections that stand out of their own standard errors."""
    errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(columns.T @ columns)), TINY))
    bias = linear.columns.shape[1]
    return [
        (BIAS if c == bias else int(c), float(v), float(abs(v) / e))
        for c, v, e in zip(selected, values, errors)
        if abs(v) > st.RECOVERED * e
    ]


def _named(
    suspect: Suspect, linear: LinearChannel, column: int, off: float, certainty: float
) -> WrongWeight:
    if column == BIAS:
        bias = suspect.inputs[2] if suspect.has(2) else None
        value = 0.0
        if bias is not None:
            flat = np.ravel(bias)
            value = float(flat[linear.channel if flat.size > linear.channel else 0])
        return WrongWeight((linear.channel,), True, value, off, certainty)
    index = tuple(int(i) for i in linear.indices[column])
    return WrongWeight(index, False, float(suspect.inputs[1][index]), off, certainty)
