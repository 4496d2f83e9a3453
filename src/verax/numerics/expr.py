"""Expressions: an operator's scalar meaning as a value that can be hashed, composed and compiled.

An `Expr` is an immutable tree over typed inputs and constants whose inner nodes are primitives
of `Arith` or named functions. Equal expressions are one object, so that equality is identity,
hashing is free, and shared parts are evaluated once. `trace` makes one from `compute(m, *xs)`,
`compose` fuses one into another, `evaluate` runs one in any arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from verax.base.process.forks import on_fork
from verax.numerics.arith import CONVERSIONS, PRIMITIVES, Arith, result_dtype
from verax.numerics.formats import numpy_dtype

# Without callbacks, in which Python would drop a Ctrl-C: what died is swept out now and then.
_interned: dict[tuple[Any, ...], ReferenceType[Expr]] = {}
_FEW = 1 << 12
_sweep_at = _FEW
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


on_fork(_renew_lock)
_SHOWN = 40  # larger expressions are not written out by repr: shared parts would repeat


class Expr:
    """Base of Input, Const and Apply. Immutable; equal expressions are the same object."""

    __slots__ = ("__weakref__", "_fields", "args", "dtype")
    dtype: str
    args: tuple[Expr, ...]
    _fields: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._fields

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: Any) -> Expr:
        return self


def _intern(cls: type, key: tuple[Any, ...], fields: tuple[Any, ...], **slots: Any) -> Any:
    with _lock:
        reference = _interned.get((cls, *key))
        expr = None if reference is None else reference()
        if expr is None:
            expr = object.__new__(cls)
            for name, value in {**slots, "_fields": fields}.items():
                object.__setattr__(expr, name, value)
            _interned[(cls, *key)] = ref(expr)
            if len(_interned) > _sweep_at:
                _sweep()
    return expr


def _sweep() -> None:
    """Forget expressions that nobody holds: so the table is at most twice what lives, and a few."""
    global _sweep_at
    keys = list(_interned)
    while keys:  # the youngest first: its key holds its parts, which were made before it
        key = keys.pop()
        if _interned[key]() is None:
            del _interned[key]
    _sweep_at = max(_FEW, 2 * len(_interned))


class Input(Expr):
    """The input number `index`."""

    __slots__ = ("index",)
    index: int

    def __new__(cls, index: int, dtype: str) -> Input:
        numpy_dtype(dtype)
        dtype = str(dtype)
        key = (int(index), dtype)
        return _intern(cls, key, key, index=int(index), dtype=dtype, args=())

    def __repr__(self) -> str:
        return f"Input({self.index}, {self.dtype!r})"


class Const(Expr):
    """A constant, rounded into its dtype; -0.0 and 0.0 differ, all NaN are one."""

    __slots__ = ("value",)
    value: float | int | bool

    def __new__(cls, value: float | int | bool, dtype: str) -> Const:
        with np.errstate(over="ignore"):
            stored = np.asarray(value).astype(numpy_dtype(dtype))
        plain = stored.astype(np.float64).item() if stored.dtype.kind in "fV" else stored.item()
        dtype = str(dtype)
        key = (repr(plain), dtype)
        return _intern(cls, key, (plain, dtype), value=plain, dtype=dtype, args=())

    def __repr__(self) -> str:
        return f"Const({self.value!r}, {self.dtype!r})"


class RunTime(Expr):
    """A whole number that is read when the code runs: `value`, a dimension, says which."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, value: Any, dtype: str) -> RunTime:
        numpy_dtype(dtype)
        key = (value, str(dtype))
        return _intern(cls, key, key, value=value, dtype=str(dtype), args=())

    def __repr__(self) -> str:
        return f"RunTime({self.value}, {self.dtype!r})"


class Apply(Expr):
    """A primitive of `Arith` or a named function, applied to expressions."""

    __slots__ = ("function",)
    function: str

    def __new__(cls, function: str, args: Sequence[Expr], dtype: str) -> Apply:
        args, dtype = tuple(args), str(dtype)
        key = (function, args, dtype)
        return _intern(cls, key, key, function=function, args=args, dtype=dtype)

    def __repr__(self) -> str:
        if any(i >= _SHOWN for i, _ in enumerate(nodes(self))):
            return f"{self.function}(...) of {sum(1 for _ in nodes(self))} nodes"
        suffix = f" as {self.dtype}" if self.function in CONVERSIONS else ""
        return f"{self.function}({', '.join(map(repr, self.args))}){suffix}"


def nodes(expr: Expr) -> Iterator[Expr]:
    """Every distinct subexpression, operands before their users, `expr` last."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))


def input_dtypes(expr: Expr) -> dict[int, str]:
    """{index: dtype} of the inputs that `expr` reads, ascending; TypeError if one has two."""
    dtype_of: dict[int, str] = {}
    for node in nodes(expr):
        if isinstance(node, Input) and dtype_of.setdefault(node.index, node.dtype) != node.dtype:
            raise TypeError(f"input {node.index} has dtypes {dtype_of[node.index]}, {node.dtype}")
    return dict(sorted(dtype_of.items()))


class TracingArith(Arith[Expr]):
    """Builds expressions instead of computing."""

    def bind(self, raw: Any, dtype: str) -> Expr:
        if not isinstance(raw, Expr) or raw.dtype != dtype:
            raise TypeError(f"expected an expression of {dtype}, got {raw!r}")
        return raw

    def unbind(self, value: Expr) -> Expr:
        return value

    def dtype(self, x: Expr) -> str:
        return x.dtype

    def const(self, value: float | int | bool, dtype: str) -> Expr:
        if not isinstance(value, float | int | bool | np.generic | np.ndarray):
            return RunTime(value, dtype)
        return Const(value, dtype)

    def primitive(self, name: str, args: tuple[Expr, ...], target: str | None = None) -> Expr:
        return Apply(name, args, result_dtype(name, tuple(a.dtype for a in args), target))

    def call(self, function: str, *args: Expr) -> Expr:
        if function in PRIMITIVES:
            raise TypeError(f"{function} is a primitive, not a named function")
        if any(a.dtype != args[0].dtype for a in args):
            raise TypeError(f"{function} is not defined on {[a.dtype for a in args]}")
        return Apply(function, args, args[0].dtype)


def converted(x: Expr, dtype: str) -> Expr:
    """`x` in another type; itself where it has that one."""
    return x if x.dtype == dtype else TracingArith().convert(x, dtype)


def trace(fn: Callable[..., Expr], dtypes: Sequence[str]) -> Expr:
    """The expression of `fn(m, x0, x1, ...)` for inputs of `dtypes`."""
    result = fn(TracingArith(), *(Input(i, d) for i, d in enumerate(dtypes)))
    if not isinstance(result, Expr):
        raise TypeError(f"{fn} returned {type(result).__name__}, not one expression")
    return result


def substitute(expr: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """`expr` with whole subexpressions replaced by others of the same dtype (else TypeError)."""
    done: dict[Expr, Expr] = {}
    for node in nodes(expr):
        new = replacements.get(node)
        if new is None:
            new = node
            if isinstance(node, Apply):
                new = Apply(node.function, [done[a] for a in node.args], node.dtype)
        elif new.dtype != node.dtype:
            raise TypeError(f"{node!r} cannot be replaced by a value of {new.dtype}")
        done[node] = new
    return done[expr]


def compose(expr: Expr, replacements: Mapping[int, Expr]) -> Expr:
    """`expr` with the inputs in `replacements` (index -> expression of the same dtype) replaced.

    Inputs not named stay as they are; TypeError when dtypes differ.
    """
    dtypes = input_dtypes(expr)
    used = {i: e for i, e in replacements.items() if i in dtypes}
    return substitute(expr, {Input(i, dtypes[i]): e for i, e in used.items()})


def evaluate_all(exprs: Sequence[Expr], arith: Arith[Any], inputs: Sequence[Any]) -> list[Any]:
    """The values of several expressions over the same inputs; common parts computed once.

    inputs: by index, raw values that `arith.bind` accepts; the results are unbound.
    """
    values: dict[Expr, Any] = {}
    for expr in exprs:
        for node in nodes(expr):
            if node in values:
                continue
            if isinstance(node, Input):
                values[node] = arith.bind(inputs[node.index], node.dtype)
            elif isinstance(node, Const | RunTime):
                values[node] = arith.const(node.value, node.dtype)
            elif isinstance(node, Apply):
                args = tuple(values[a] for a in node.args)
                if node.function in PRIMITIVES:
                    target = node.dtype if node.function in CONVERSIONS else None
                    values[node] = arith.primitive(node.function, args, target)
                else:
                    values[node] = arith.call(node.function, *args)
    return [arith.unbind(values[e]) for e in exprs]


def evaluate(expr: Expr, arith: Arith[Any], inputs: Sequence[Any]) -> Any:
    """The value of `expr` in `arith`; see `evaluate_all`."""
    return evaluate_all([expr], arith, inputs)[0]


def text(expr: Expr) -> str:
    """The expression as lines `vN = function operands dtype`: stable, for cache keys and reports.

    Two expressions have the same text exactly when they are equal.
    """
    names: dict[Expr, str] = {}
    lines = []
    for node in nodes(expr):
        name = names[node] = f"v{len(names)}"
        if isinstance(node, Input):
            operation = f"input {node.index}"
        elif isinstance(node, Const | RunTime):
            operation = f"const {node.value!r}"
        else:
            assert isinstance(node, Apply)
            operation = " ".join([node.function, *(names[a] for a in node.args)])
        lines.append(f"{name} = {operation} {node.dtype}\n")
    return "".join(lines)
