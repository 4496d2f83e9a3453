"""Functions of NumPy arrays under random rounding: a subclass of `ndarray` that rounds at random.

Operations are seen as ufuncs and as array functions, so that loops and indexing work. What leaves
NumPy (`float(x)`, `math.exp(x)`) is no longer seen; the noise that is in it by then stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.numerics.formats import FORMATS, dtype_name
from verax.testing.random_rounding import Arrays, RoundingNoise

EXACT = frozenset(
    (
        *("negative", "positive", "absolute", "fabs", "maximum", "minimum", "fmax", "fmin"),
        *("sign", "floor", "ceil", "trunc", "rint", "conjugate", "copysign", "clip", "heaviside"),
        *("isnan", "isinf", "isfinite", "signbit", "spacing", "nextafter", "frexp", "ldexp"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor", "logical_not"),
    )
)
"""Ufuncs whose result is exact, or no float."""
PRODUCTS: dict[Any, int] = {
    np.dot: 2,
    np.inner: 2,
    np.vdot: 2,
    np.tensordot: 2,
    np.convolve: 2,
    np.correlate: 2,
}
"""Array functions that sum products of so many first arguments."""
_noise: ContextVar[RoundingNoise | None] = ContextVar("noise", default=None)


class RoundedArray(np.ndarray):
    """Float64 numbers whose every operation is rounded at random while `rounding_at_random`."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any
    ) -> Any:
        noise = _noise.get()
        plain = [_plain(x) for x in inputs]
        if out is not None:
            keywords["out"] = tuple(_plain(o) for o in out)
        if isinstance(keywords.get("where"), RoundedArray):
            keywords["where"] = _plain(keywords["where"])
        result = getattr(ufunc, method)(*plain, **keywords)
        if method == "at":
            return None
        if noise is not None and ufunc.__name__ not in EXACT:
            result = _rounded(noise, ufunc, method, plain, keywords, result)
        if out is not None:
            for target, value in zip(out, result if isinstance(result, tuple) else (result,)):
                if target is not None:
                    _plain(target)[...] = value
            return out[0] if len(out) == 1 else out
        return tuple(map(_wrapped, result)) if isinstance(result, tuple) else _wrapped(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        noise = _noise.get()
        handler = _handler(func)
        if noise is None or handler is None:
            return super().__array_function__(func, types, args, kwargs)
        with _no_noise():
            result = handler(noise, func, _plain_all(args), _plain_all(kwargs))
        return _wrapped_all(result)

    def dot(self, factor: Any, out: Any = None) -> Any:
        """As `np.dot`, whose C method does not ask."""
        return np.dot(self, factor) if out is None else np.dot(self, factor, out)

    def __getitem__(self, key: Any) -> Any:
        # A single element stays an array, else loops over elements would no longer be seen.
        return _wrapped(super().__getitem__(key))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, RoundedArray) else x


def _plain_all(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(map(_plain_all, x)) if type(x) in (tuple, list) else x
    if isinstance(x, dict):
        return {k: _plain_all(v) for k, v in x.items()}
    return _plain(x)


def _wrapped(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.floating) and np.asarray(x).dtype == np.float64:
        return np.asarray(x).view(RoundedArray)
    return x


def _wrapped_all(x: Any) -> Any:
    if isinstance(x, tuple | list) and type(x) in (tuple, list):
        return type(x)(map(_wrapped_all, x))
    if isinstance(x, tuple):  # a named result of linalg
        return type(x)(*map(_wrapped_all, x))
    return _wrapped(x)


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.floating | float) and np.asarray(x).dtype.kind == "f"


def _rounded(
    noise: RoundingNoise,
    ufunc: np.ufunc,
    method: str,
    inputs: list[Any],
    keywords: Any,
    result: Any,
) -> Any:
    """The result of a ufunc's method, rounded as sums and elements are."""
    if isinstance(result, tuple):
        return tuple(noise.rounded(r) if _is_float(r) else r for r in result)
    if not _is_float(result):
        return result
    options = {k: v for k, v in keywords.items() if k in ("axis", "keepdims", "axes", "where")}
    name = ufunc.__name__
    if name in ("matmul", "vecdot", "matvec", "vecmat"):
        squares = ufunc(*(np.square(x) for x in inputs[:2]), **options)
        return noise.summed(result, squares, inputs[0].shape[-1])
    if method == "__call__" or method == "outer":
        return noise.rounded(result)
    x = np.asarray(inputs[0], np.float64)
    if method == "accumulate":
        axis = keywords.get("axis", inputs[1] if len(inputs) > 1 else 0) or 0
        steps = np.arange(1, x.shape[axis] + 1).reshape(
            [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
        )
        if name == "add":
            return noise.summed(result, np.add.accumulate(x * x, axis), steps)
        # Each place has the roundings of all before it.
        roundings = noise.random.uniform(-1, 1, x.shape).cumsum(axis)
        return result * (1 + noise.sums * roundings)
    count = max(1, x.size // max(1, np.size(result)))
    if name == "add" and method in ("reduce", "reduceat"):
        squares = getattr(ufunc, method)(x * x, *inputs[1:], **options)
        return noise.summed(result, squares, count)
    return noise.rounded(result, count)


def _product(noise: RoundingNoise, func: Any, args: Any, kwargs: Any) -> Any:
    result = func(*args, **kwargs)
    first, second, *options = args
    squares = func(np.square(first), np.square(second), *options, **kwargs)
    sizes = max(np.size(first), np.size(second))
    count = max(1, min(np.size(first), np.size(second), sizes))
    if func not in (np.convolve, np.correlate) and np.ndim(first) and np.ndim(second):
        count = max(1, round(np.sqrt(np.size(first) * np.size(second) / max(1, np.size(result)))))
    return noise.summed(np.asarray(result), squares, count)


def _einsum(noise: RoundingNoise, func: Any, args: Any, kwargs: Any) -> Any:
    arrays = [x for x in args if isinstance(x, np.ndarray)]
    result = np.asarray(func(*args, **kwargs))
    squared = [np.square(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
               for x in args]  # fmt: skip
    squares = np.asarray(func(*squared, **kwargs))
    ones = [np.ones(x.shape) if isinstance(x, np.ndarray) else x for x in args]
    count = np.asarray(func(*ones, **kwargs))
    return noise.rounded(noise.summed(result, squares, count), len(arrays))


def _solver(noise: RoundingNoise, func: Any, args: Any, kwargs: Any) -> Any:
    """A routine of linear algebra or a transform: its inputs disturbed as a whole."""

    def disturbed(x: Any) -> Any:
        if not _is_float(x) or not np.ndim(x):
            return x
        return noise.normwise(np.asarray(x), max(np.shape(x)))

    result = func(*map(disturbed, args), **kwargs)
    return _changed(result, noise.rounded)


def _interpolated(noise: RoundingNoise, func: Any, args: Any, kwargs: Any) -> Any:
    """A function that computes element by element: inputs and result disturbed."""
    disturbed = [noise.rounded(np.asarray(x)) if _is_float(x) else x for x in args]
    return _changed(func(*disturbed, **kwargs), noise.rounded)


def _changed(result: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(result, tuple | list):
        changed = [_changed(r, change) for r in result]
        return type(result)(*changed) if hasattr(result, "_fields") else type(result)(changed)
    return change(np.asarray(result)) if _is_float(result) else result


def _handler(func: Any) -> Callable[[RoundingNoise, Any, Any, Any], Any] | None:
    if func in PRODUCTS:
        return _product
    if func is np.einsum:
        return _einsum
    if func is np.interp:
        return _interpolated
    module = str(getattr(func, "__module__", ""))
    inside = func in (np.linalg.norm, np.linalg.matrix_norm, np.linalg.vector_norm)
    if module.startswith(("numpy.linalg", "numpy.fft")) and not inside:
        return _solver
    return None


@contextmanager
def rounding_at_random(noise: RoundingNoise) -> Iterator[None]:
    """Inside, `RoundedArray`s are rounded as `noise` draws it."""
    token = _noise.set(noise)
    try:
        yield
    finally:
        _noise.reset(token)


@contextmanager
def _no_noise() -> Iterator[None]:
    token = _noise.set(None)
    try:
        yield
    finally:
        _noise.reset(token)


class NumpyFunction:
    """A function of NumPy arrays. inputs: arrays by position, of any float type."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any], label: str) -> None:
        self.function, self.label = function, label
        self.inputs = tuple(inputs)

    def exact(self) -> Arrays:
        return self._outputs([_wide(x) for x in self.inputs])

    def with_input(self, index: int, by: np.ndarray) -> Arrays:
        wide = [_wide(x) for x in self.inputs]
        wide[index] = by
        return self._outputs(wide)

    def sample(self, noise: RoundingNoise) -> Arrays:
        inputs = [
            _wrapped(noise.disturbed(_wide(x))) if _wide(x).dtype.kind == "f" else x
            for x in self.inputs
        ]
        with rounding_at_random(noise):
            return self._outputs(inputs)

    def own(self) -> Arrays | None:
        try:
            return self._outputs([x.copy() for x in self.inputs])
        except Exception:  # whatever a function of anybody's raises in a narrow type
            return None

    def _outputs(self, inputs: Sequence[Any]) -> Arrays:
        with np.errstate(all="ignore"):
            return arrays_of(self.function(*inputs), self.label)


def _wide(x: np.ndarray) -> np.ndarray:
    named = dtype_name(x.dtype) in FORMATS
    return x.astype(np.float64) if named else x.copy()


def arrays_of(result: Any, label: str) -> Arrays:
    """What a function returned as arrays in order. Raises `UsageError` for anything else."""
    listed = list(result.values()) if isinstance(result, Mapping) else result
    listed = list(listed) if isinstance(listed, list | tuple) else [listed]
    arrays = [np.asarray(_plain(x)) for x in listed]
    if any(a.dtype.kind not in "biuf" for a in arrays):
        raise UsageError(
            "the meaning gives something that is no array of real numbers",
            place=label,
            next_step="return an array, or a tuple or dictionary of arrays",
        )
    return arrays
