"""Elementary functions of GPUs as data: greatest errors that makers state or that were measured.

Instructions (`ex2.approx.f32`), fast intrinsics (`__expf`) and a library's own function (the tanh
of cuDNN's recurrent networks) err more than the correctly rounded functions by which float32 is
judged. Each has limits by range of its argument; outside of them nothing is promised, and `bound`
is infinite. Only errors that say so were measured here.

Sources: "PTX ISA", sections 9.7.3 (floating point) and 9.7.4 (half precision); "CUDA C++
Programming Guide", tables of single-precision intrinsic functions. The tanh of cuDNN 9.19 was
measured on records of an H100: a curve fitted to one LSTM explains 89 % of the error's variance of
another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.numerics.formats import BFLOAT16, FLOAT16, FLOAT32, FloatFormat, ulp

PTX, CUDA = "PTX ISA", "CUDA C++ Programming Guide"
EVERYWHERE = math.inf


@dataclass(frozen=True)
class ErrorLimit:
    """Greatest error for arguments with low <= x <= high: the sum of a part of the exact result, an
    absolute error, ulps, and ulps that grow with |x| (rounded down). Makers count ulps from the
    correctly rounded result."""

    low: float = -EVERYWHERE
    high: float = EVERYWHERE
    relative: float = 0.0
    absolute: float = 0.0
    ulps: float = 0.0
    ulps_per_argument: float = 0.0


@dataclass(frozen=True)
class GpuFunction:
    """An approximation of `function` (a name of NumPy's, or "divide", "reciprocal", "rsqrt") whose
    results are of `format`.

    limits: the first one whose range holds the argument counts; of a division the argument is the
    divisor's magnitude. sigma: standard deviation as a part of the result, if it was measured.
    is_per_argument: equal arguments give equal errors, which averaging does not reduce.
    """

    name: str
    function: str
    limits: tuple[ErrorLimit, ...]
    source: str
    format: FloatFormat = FLOAT32
    sigma_relative: float | None = None
    measured_on: str = ""
    is_per_argument: bool = True

    @property
    def is_measured(self) -> bool:
        return bool(self.measured_on)

    def bound(self, x: Any, exact: Any) -> np.ndarray:
        """Greatest error at arguments x whose exact results are `exact` (float64; broadcasts).
        Infinite where no limit holds; 0 where x is NaN or the result not finite."""
        x, exact = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(exact, np.float64))
        size = np.abs(exact)
        result = np.full(x.shape, np.inf)
        with np.errstate(invalid="ignore"):
            for limit in reversed(self.limits):
                ulps = limit.ulps + np.floor(limit.ulps_per_argument * np.abs(x))
                error = limit.relative * size + limit.absolute
                if limit.ulps or limit.ulps_per_argument:
                    error = error + (ulps + 0.5) * ulp(exact, self.format)
                inside = (x >= limit.low) & (x <= limit.high)
                result = np.where(inside, error, result)
        result += self.format.smallest_subnormal
        return np.where(np.isnan(x) | ~np.isfinite(exact), 0.0, result)

    def sigma(self, x: Any, exact: Any) -> np.ndarray:
        """Standard deviation of the error: measured, else of an error uniform within `bound`."""
        if self.sigma_relative is not None:
            return np.asarray(self.sigma_relative * np.abs(np.asarray(exact, np.float64)))
        return np.asarray(self.bound(x, exact) / math.sqrt(3))


_TURN = 2 * math.pi
_NORMAL = ErrorLimit(2.0**-126, 2.0**126, ulps=2)
_SMALL_ANGLES = (
    ErrorLimit(-_TURN, _TURN, absolute=2.0**-20.5),
    ErrorLimit(-50 * _TURN, 50 * _TURN, absolute=2.0**-14.7),
)


def _near_one(absolute: float, alternative: ErrorLimit) -> tuple[ErrorLimit, ...]:
    """Limits of logarithms: absolute where the result may be near zero."""
    return ErrorLimit(0.5, 2.0, absolute=absolute), alternative


GPU_FUNCTIONS: dict[str, GpuFunction] = {
    f.name: f
    for f in (
        GpuFunction(
            "cuDNN's tanh in recurrent networks",
            "tanh",
            (ErrorLimit(relative=2.0**-16.5),),
            "records of an H100, cuDNN 9.19",
            sigma_relative=2.0**-17.7,
            measured_on="NVIDIA H100 80GB HBM3, cuDNN 9.19",
        ),
        GpuFunction("ex2.approx.f32", "exp2", (ErrorLimit(ulps=2),), PTX),
        GpuFunction("ex2.approx.f16", "exp2", (ErrorLimit(relative=2.0**-9.9),), PTX, FLOAT16),
        GpuFunction("ex2.approx.bf16", "exp2", (ErrorLimit(relative=2.0**-7),), PTX, BFLOAT16),
        GpuFunction(
            "lg2.approx.f32",
            "log2",
            _near_one(2.0**-22, ErrorLimit(0.0, EVERYWHERE, relative=2.0**-22)),
            PTX,
        ),
        GpuFunction("rcp.approx.f32", "reciprocal", (ErrorLimit(ulps=1),), PTX),
        GpuFunction("div.approx.f32", "divide", (_NORMAL,), PTX),
        GpuFunction("div.full.f32", "divide", (ErrorLimit(ulps=2),), PTX),
        GpuFunction("sqrt.approx.f32", "sqrt", (ErrorLimit(0.0, relative=2.0**-23),), PTX),
        GpuFunction("rsqrt.approx.f32", "rsqrt", (ErrorLimit(0.0, relative=2.0**-22.9),), PTX),
        GpuFunction("sin.approx.f32", "sin", _SMALL_ANGLES, PTX),
        GpuFunction("cos.approx.f32", "cos", _SMALL_ANGLES, PTX),
        GpuFunction("tanh.approx.f32", "tanh", (ErrorLimit(relative=2.0**-11),), PTX),
        GpuFunction("tanh.approx.f16", "tanh", (ErrorLimit(absolute=2.0**-10.987),), PTX, FLOAT16),
        GpuFunction("tanh.approx.bf16", "tanh", (ErrorLimit(absolute=2.0**-8),), PTX, BFLOAT16),
        GpuFunction("__expf", "exp", (ErrorLimit(ulps=2, ulps_per_argument=1.173),), CUDA),
        GpuFunction("__logf", "log", _near_one(2.0**-21.41, ErrorLimit(0.0, ulps=3)), CUDA),
        GpuFunction("__log2f", "log2", _near_one(2.0**-22, ErrorLimit(0.0, ulps=2)), CUDA),
        GpuFunction("__log10f", "log10", _near_one(2.0**-24, ErrorLimit(0.0, ulps=3)), CUDA),
        GpuFunction("__sinf", "sin", (ErrorLimit(-math.pi, math.pi, absolute=2.0**-21.41),), CUDA),
        GpuFunction("__cosf", "cos", (ErrorLimit(-math.pi, math.pi, absolute=2.0**-21.19),), CUDA),
        GpuFunction("__tanhf", "tanh", (ErrorLimit(relative=2.0**-11),), CUDA),
        GpuFunction("__fdividef", "divide", (_NORMAL,), CUDA),
    )
}
"""By name. Not among them: __powf and __tanf, which are stated as compositions only."""


def approximations(function: str) -> tuple[GpuFunction, ...]:
    """The known approximations of a function, those with the smallest error at 1 first."""
    result = [f for f in GPU_FUNCTIONS.values() if f.function == function]
    return tuple(sorted(result, key=lambda f: float(f.bound(1.0, 1.0))))
