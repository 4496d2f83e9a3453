"""The next token, chosen from logits: the same choice on every machine.

The generator of random numbers is Philox-4x64-10 (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011; `numpy.random.Philox`), which needs no state: the number for the token `position`
(from 0, prompt excluded) of the sequence `row` is the first word for the key (seed, row) and the
counter (position, 0, 0, 0), NumPy's: it counts up before it draws.

Probabilities are whole numbers. A token whose logit lies d below the largest has the weight
rint(2**40 exp(-d / temperature)), where d is a difference in float64, and exp is a series of single
additions and multiplications of float64 (`numerics.functions_double`), which IEEE 754 fixes. Sums
of weights are exact, so they do not depend on their order; shares are compared as whole numbers.
Among tokens in descending order of logits, the smaller id first, the first is taken whose sum of
weights up to it exceeds floor(r total / 2**64), r being the random number.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from verax.base.errors import InputError
from verax.base.option_groups.generation_options import SamplingOptions

ONE = 1 << 40
"""The weight of the likeliest token; 2**22 tokens have a sum below 2**63."""
LOWEST = -28.5
"""What lies further below the likeliest has the weight 0."""
LOG2_E, LN_2, ROUND = math.log2(math.e), math.log(2.0), 1.5 * 2.0**52
ODD = tuple(range(25, 0, -2))
"""Of the terms of artanh's series, the smallest term first."""
FRACTION_BITS = 52
"""Of a float64: its exponent is above them."""
FACTORS = tuple(1.0 / math.factorial(k) for k in reversed(range(12)))


def exponential(x: np.ndarray) -> np.ndarray:
    """exp(x) of float64 [n] within -30 .. 0: the bits of `functions_double.exp_d`, by NumPy's
    operations, each of which rounds once."""
    shifted = x * LOG2_E
    shifted += ROUND
    exponent = shifted - ROUND
    remainder = x - exponent * LN_2
    series = np.full_like(x, FACTORS[0])
    for factor in FACTORS[1:]:
        series *= remainder
        series += factor
    scaled = exponent.astype(np.int64) << FRACTION_BITS
    scaled += series.view(np.int64)
    return scaled.view(np.float64)


def weights(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities as multiples of that of the likeliest: int64 [n], `ONE` at most. logits: [n]
    of floats, none of them NaN and the largest finite; temperature: above 0."""
    below = logits.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        below -= below.max()
        below /= np.float64(temperature)
    unlikely = below <= LOWEST
    scaled = exponential(np.maximum(below, LOWEST, out=below))
    scaled *= np.float64(ONE)
    result = np.rint(scaled, out=scaled).astype(np.int64)
    result[unlikely] = 0
    return result


def logarithm(x: float) -> float:
    """log(x) of a positive normal number within 4 units of the last place, by single operations of
    float64: k log(2) + 2 artanh((m - 1) / (m + 1)) for x = 2**k m, m from sqrt(1/2) to sqrt(2)."""
    fraction, exponent = math.frexp(x)
    if fraction < math.sqrt(0.5):
        fraction, exponent = 2.0 * fraction, exponent - 1
    ratio = (fraction - 1.0) / (fraction + 1.0)
    square, series = ratio * ratio, 0.0
    for odd in ODD:
        series = series * square + 1.0 / odd
    return exponent * LN_2 + 2.0 * ratio * series


def log_probability(logits: np.ndarray, token: int) -> float:
    """Natural logarithm of the model's own probability of `token`: temperature 1, all tokens.

    It is the same number on every machine, and within n 2**-41 of the exact one.
    """
    total = int(weights(logits, 1.0).sum()) / ONE
    return float(logits[token]) - float(logits.max()) - logarithm(total)


def candidates(logits: np.ndarray, count: int) -> np.ndarray:
    """The `count` tokens of the largest logits, descending; equal ones by id. 0: all of them."""
    if not 0 < count < logits.size:
        return np.argsort(-logits, kind="stable")
    smallest = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > smallest)
    equal = np.flatnonzero(logits == smallest)[: count - above.size]
    selected = np.sort(np.concatenate([above, equal]))
    return selected[np.argsort(-logits[selected], kind="stable")]


def random_word(seed: int, row: int, position: int) -> int:
    """64 random bits; see the head of this file."""
    bits = np.random.Philox(
        key=np.array([seed, row], np.uint64), counter=np.array([position, 0, 0, 0], np.uint64)
    )
    return int(bits.random_raw())


def next_token(logits: np.ndarray, options: SamplingOptions, row: int, position: int) -> int:
    """The token after a sequence. logits: [vocabulary], of any float type.

    Raises `InputError` where logits are NaN or positive infinity.
    """
    logits = logits.astype(np.float32, copy=False)
    highest = logits.max()
    if not math.isfinite(highest):
        raise InputError(
            f"the model's logits are {'NaN' if np.isnan(highest) else highest}",
            place=f"token {position} of sequence {row}",
            next_step="`verax check` judges the model; a padded prompt needs a model that takes an "
            "attention_mask",
        )
    if not options.divisor:
        return int(np.argmax(logits))
    tokens = candidates(logits, options.top_k)
    sums = np.cumsum(weights(logits[tokens], options.divisor))
    if options.top_p < 1:
        needed = math.ceil(Fraction(options.top_p) * int(sums[-1]))
        sums = sums[: int(np.searchsorted(sums, needed)) + 1]
    drawn = random_word(options.seed or 0, row, position) * int(sums[-1]) >> 64
    return int(tokens[np.searchsorted(sums, drawn, side="right")])
