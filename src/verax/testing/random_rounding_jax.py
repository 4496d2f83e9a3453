"""Functions of JAX's arrays under random rounding: their jaxpr, evaluated equation by equation.

Calls and scans are entered; while loops and branches are computed as a whole, from disturbed
inputs. Float64 is enabled for the time of an evaluation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.optional import optional
from verax.numerics.formats import FORMATS, dtype_name
from verax.testing.random_rounding import Arrays, RoundingNoise

jax: Any = optional("jax", "to judge functions of JAX's arrays")

EXACT = frozenset(
    (
        *("neg", "abs", "max", "min", "sign", "floor", "ceil", "round", "clamp", "select_n"),
        *("broadcast_in_dim", "reshape", "transpose", "squeeze", "slice", "dynamic_slice", "rev"),
        *("concatenate", "pad", "gather", "dynamic_update_slice", "iota", "copy", "copy_p", "sort"),
        *("reduce_max", "reduce_min", "argmax", "argmin", "stop_gradient", "convert_element_type"),
        *("expand_dims", "eq", "ne", "lt", "le", "gt", "ge", "scatter", "split", "cummax"),
        *("is_finite", "reduce_precision", "optimization_barrier", "top_k", "device_put"),
    )
)
"""Primitives whose results are exact (of float64 values)."""
LINEAR = ("reduce_sum", "cumsum", "dot_general", "conv_general_dilated", "add_any", "scatter-add")
"""Primitives that are disturbed as sums of products are."""
INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Parameters that hold the jaxpr of a call."""


class JaxFunction:
    """A function of JAX's arrays. inputs: arrays on the host, by position."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[np.ndarray], label: str
    ) -> None:
        self.function, self.label = function, label
        self.inputs = tuple(inputs)
        self._traced: tuple[Any, Any] | None = None

    def exact(self) -> Arrays:
        return self._run([_wide(x) for x in self.inputs])

    def with_input(self, index: int, by: np.ndarray) -> Arrays:
        wide = [_wide(x) for x in self.inputs]
        wide[index] = np.asarray(by, np.float64)
        return self._run(wide)

    def own(self) -> Arrays | None:
        try:
            return _listed(self.function(*map(jax.numpy.asarray, self.inputs)), self.label)
        except Exception:  # whatever a function of anybody's raises in a narrow type
            return None

    def sample(self, noise: RoundingNoise) -> Arrays:
        wide = [_wide(x) for x in self.inputs]
        disturbed = [noise.disturbed(x) if x.dtype == np.float64 else x for x in wide]
        with jax.enable_x64(True):
            if self._traced is None:
                self._traced = jax.make_jaxpr(self.function, return_shape=True)(*wide)
            closed, shape = self._traced
            flat = _evaluated(noise, closed.jaxpr, closed.consts, disturbed)
            result = jax.tree.unflatten(jax.tree.structure(shape), flat)
            return _listed(result, self.label)

    def _run(self, inputs: Sequence[np.ndarray]) -> Arrays:
        with jax.enable_x64(True):
            return _listed(self.function(*map(jax.numpy.asarray, inputs)), self.label)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if dtype_name(x.dtype) in FORMATS else x


def _listed(result: Any, label: str) -> Arrays:
    listed = list(result.values()) if isinstance(result, Mapping) else result
    listed = list(listed) if isinstance(listed, list | tuple) else [listed]
    return [np.asarray(as_array(x, label)) for x in listed]


def _evaluated(
    noise: RoundingNoise, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    """Outputs of a jaxpr, each equation rounded at random."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts))
    values.update(zip(jaxpr.invars, inputs))

    def read(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        results = _applied(noise, equation, [read(a) for a in equation.invars])
        values.update(zip(equation.outvars, results))
    return [read(a) for a in jaxpr.outvars]


def _applied(noise: RoundingNoise, equation: Any, inputs: list[Any]) -> list[Any]:
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        return _scanned(noise, equation, inputs)
    inner = next((parameters[k] for k in INNER if k in parameters), None)
    if inner is not None and name not in ("while", "cond"):
        closed = hasattr(inner, "consts")
        body, consts = (inner.jaxpr, inner.consts) if closed else (inner, [])
        return _evaluated(noise, body, consts, inputs)
    if name in EXACT:
        return _bound(equation, inputs)
    if name in LINEAR:
        (y,) = _bound(equation, inputs)
        if not _is_wide(y):
            return [y]
        (squares,) = _bound(equation, [_if_float(np.square, x) for x in inputs])
        (count,) = _bound(equation, [_if_float(np.ones_like, x) for x in inputs])
        return [noise.summed(np.asarray(y), np.asarray(squares), np.asarray(count))]
    if name in ("while", "cond"):
        inputs = [_if_float(noise.disturbed, x) for x in inputs]
    return [_if_float(noise.rounded, y) for y in _bound(equation, inputs)]


def _bound(equation: Any, inputs: Sequence[Any]) -> list[Any]:
    primitive = equation.primitive
    results = primitive.bind(*inputs, **equation.params)
    return list(results) if primitive.multiple_results else [results]


def _scanned(noise: RoundingNoise, equation: Any, inputs: list[Any]) -> list[Any]:
    """A scan, step by step."""
    p = equation.params
    consts = inputs[: p["num_consts"]]
    carry = inputs[p["num_consts"] : p["num_consts"] + p["num_carry"]]
    scanned = inputs[p["num_consts"] + p["num_carry"] :]
    outputs: list[list[Any]] = []
    steps = range(p["length"])
    for i in reversed(steps) if p["reverse"] else steps:
        body = p["jaxpr"]
        results = _evaluated(
            noise, body.jaxpr, body.consts, [*consts, *carry, *(x[i] for x in scanned)]
        )
        carry = results[: p["num_carry"]]
        outputs.append(results[p["num_carry"] :])
    if p["reverse"]:
        outputs.reverse()
    return [*carry, *(jax.numpy.stack(column) for column in zip(*outputs))]


def _is_wide(x: Any) -> bool:
    return hasattr(x, "dtype") and np.dtype(x.dtype) == np.float64


def _if_float(change: Callable[[np.ndarray], np.ndarray], x: Any) -> Any:
    return change(np.asarray(x)) if _is_wide(x) else x


def vjp_of(
    function: Callable[..., Any], differentiated: Sequence[int], outputs: int
) -> Callable[..., tuple[Any, ...]]:
    """As `random_rounding_torch.vjp_of`."""

    def vjp(*arguments: Any) -> tuple[Any, ...]:
        inputs, cotangents = list(arguments[:-outputs]), arguments[-outputs:]

        def of_wanted(*variables: Any) -> Any:
            full = list(inputs)
            for i, x in zip(differentiated, variables):
                full[i] = x
            result = function(*full)
            listed = list(result.values()) if isinstance(result, Mapping) else result
            return tuple(listed) if isinstance(listed, list | tuple) else (listed,)

        results, pull = jax.vjp(of_wanted, *(inputs[i] for i in differentiated))
        return tuple(pull(tuple(c.astype(r.dtype) for c, r in zip(cotangents, results))))

    return vjp
