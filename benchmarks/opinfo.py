"""The operators of PyTorch's own tests (OpInfo): which mean in Verax what PyTorch computes.

Every operator of `torch.testing`'s list is called on a few of its own sample inputs, the call is
exported by torch.export and loaded. PyTorch's result is judged against the float64 meaning of what
was loaded; where rounding decides nothing (no float, or nothing that can be judged), the meaning is
compared with PyTorch's result in float64. Writes a table in Markdown; `docs/opinfo.md` is its last
one.

    pip install expecttest                              # what PyTorch's list of tests needs
    python -m benchmarks.opinfo                         # all of them, many minutes
    python -m benchmarks.opinfo cumsum nn.functional.pad
    python -m benchmarks.opinfo --rows rows.json --write docs/opinfo.md
"""

from __future__ import annotations

import platform
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from benchmarks import rows
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

import verax
from verax.base.arrays import as_array
from verax.base.errors import VeraxError
from verax.frontends.model import Model
from verax.records.verdict import Kind

SAMPLES, SECONDS = 4, 20
"""Calls of one operator, spread over its sample inputs, and how long one may take."""
DTYPES = (torch.float32, torch.int64, torch.bool)
"""The first that the operator takes."""
CLOSE = 1e-6
"""How far results in float64 may differ, relative to their largest number: float32 constants."""
OUTSIDE = "cannot be exported"
HEAD = ("operator", "right", "of", "otherwise")


@dataclass
class Row:
    """One operator. calls: how many were tried. found: how they ended, and how often: "right",
    "wrong: ...", "refused: ...", "cannot be exported". parts: operators that PyTorch decomposed."""

    name: str
    calls: int = 0
    found: dict[str, int] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    @property
    def right(self) -> int:
        return self.found.get("right", 0)

    @property
    def others(self) -> dict[str, int]:
        return {k: n for k, n in self.found.items() if k != "right"}

    def cells(self) -> list[str]:
        said = "; ".join(k if n == self.calls else f"{k} ({n})" for k, n in self.others.items())
        return [self.name, str(self.right), str(self.calls), said]


class Call(torch.nn.Module):
    """A function of the tensors among its arguments."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        super().__init__()
        self.function = function
        self.leaves, self.tree = pytree.tree_flatten(arguments)
        self.places = [i for i, v in enumerate(self.leaves) if isinstance(v, torch.Tensor)]

    @property
    def tensors(self) -> tuple[Any, ...]:
        return tuple(self.leaves[i].detach().clone() for i in self.places)

    def forward(self, *tensors: Any) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        results = pytree.tree_leaves(self.function(*args, **kwargs))
        return tuple(r for r in results if isinstance(r, torch.Tensor))


@cache
def operators() -> dict[str, Any]:
    """OpInfo's entries by name and variant, those that any of our types has."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = {}
    for op in op_db:
        name = f"{op.name} ({op.variant_test_name})" if op.variant_test_name else op.name
        if dtype_of(op) is not None and "empty" not in op.name:  # memory as it was
            found[name] = op
    return found


def dtype_of(op: Any) -> Any:
    return next((d for d in DTYPES if op.supports_dtype(d, "cpu")), None)


def calls(op: Any) -> list[Call]:
    """A few calls, spread over the operator's own samples."""
    torch.manual_seed(7)
    samples = list(op.sample_inputs("cpu", dtype_of(op), requires_grad=False))
    chosen = [samples[len(samples) * i // SAMPLES] for i in range(min(SAMPLES, len(samples)))]
    return [Call(op.op, ((s.input, *s.args), s.kwargs)) for s in chosen]


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises `TimeoutError` in what takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(name: str) -> Row:
    """The row of one operator."""
    row = Row(name)
    for call in calls(operators()[name]):
        row.calls += 1
        try:
            # What a call that was stopped left on is off for the next.
            with limited(SECONDS), _disable_current_modes():
                how = judged(call, row.parts)
        except TimeoutError as error:
            how = f"refused: {error}"
        row.found[how] = row.found.get(how, 0) + 1
    return row


def judged(call: Call, parts: list[str]) -> str:
    """How one call ends."""
    given = call.tensors
    try:
        with torch.no_grad():
            program = torch.export.export(call.eval(), given, strict=False)
            results = call(*call.tensors)
    except TimeoutError:
        raise
    except Exception:
        return OUTSIDE
    if not results:
        return "cannot be exported: no tensor comes out"
    try:
        model = verax.load(program)
        assert isinstance(model, Model)
        listed = model.metadata.get("decomposed", "")
        parts += [p for p in re.findall(r"[\w:.]+(?= \()", listed) if p not in parts]
        named = {v: as_array(given[int(v.rpartition("_")[2])]) for v in model.inputs}
        return compared(model, named, results, call)
    except VeraxError as error:
        return f"refused: {said(error)}"


def said(error: VeraxError) -> str:
    """What an error says, without what differs from call to call."""
    text = error.cause.partition("; in simpler operators")[0]
    text = re.sub(r"operators that are not supported: ", "", text)
    text = re.sub(r"\s*\(\d+\)", "", text)
    return re.sub(r"\s+", " ", text)[:110]


def compared(model: Model, named: dict[str, Any], results: Sequence[Any], call: Call) -> str:
    """The verdict on PyTorch's results; in float64 where there is none."""
    answers = {o: as_array(r) for o, r in zip(model.outputs, results)}
    answers = {o: a for o, a in answers.items() if o not in named or not same(a, named[o])}
    if not answers:
        return "right"  # its inputs are its outputs
    meant = verax.reference(model, named)
    for o, array in answers.items():
        if meant[o].shape != array.shape:
            return f"wrong: the shape {meant[o].shape}, PyTorch gives {array.shape}"
    verdict = verax.check(model, answers, named, explain=False, twice=False)
    if verdict.kind in (Kind.identical, Kind.rounding):
        return "right"
    wide = [
        t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t
        for t in call.tensors
    ]
    try:
        with torch.no_grad():
            exact = call(*wide)
    except Exception:
        exact = results
    if all(close(meant[o], as_array(r)) for o, r in zip(model.outputs, exact)):
        return "right"
    return f"wrong: {verdict.kind}, {verdict.reasons[0][:90]}"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal, NaN at the same places."""
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal but for float32 constants, NaN and infinities at the same places."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    scale = np.abs(b[finite]).max(initial=1e-30)
    return bool((np.abs(a[finite] - b[finite]) <= CLOSE * scale).all())


def page(found: Sequence[Row]) -> str:
    """The page."""
    exported = [r for r in found if set(r.found) - {OUTSIDE}]
    whole = [r for r in exported if not set(r.others) - {OUTSIDE}]
    partly = [r for r in exported if r.right and r not in whole]
    wrong = [r for r in found if any(k.startswith("wrong") for k in r.found)]
    lines = [
        "# Operators of PyTorch's own tests",
        "",
        "Made by `python -m benchmarks.opinfo`: the operators of PyTorch's OpInfo (its own tests' "
        f"list), each called on up to {SAMPLES} of its sample inputs, exported by `torch.export`, "
        "loaded, and PyTorch's result judged against the float64 meaning; where rounding decides "
        "nothing, the meaning compared with PyTorch's result in float64. Operators in whose every "
        "call that can be exported PyTorch and Verax agree are listed by name only.",
        "",
        f"**{len(found)} operators, {len(exported)} of which torch.export can export: "
        f"{len(whole)} are right in every call, {len(partly)} in some and refused in others, "
        f"{len(exported) - len(whole) - len(partly)} are refused; wrong: {len(wrong)}.**",
        "",
        f"PyTorch {torch.__version__}, {platform.machine()}.",
        "",
        "## Why calls are refused",
        "",
        *reasons(found),
        "",
        "## Refused in some call or in all",
        "",
        *rows.table(HEAD, sorted((r for r in exported if r not in whole), key=lambda r: r.name)),
        "",
        "## Right",
        "",
        ", ".join(sorted(r.name for r in whole)) + ".",
        "",
        "## What torch.export cannot export",
        "",
        ", ".join(sorted(r.name for r in found if r not in exported)) + ".",
    ]
    return "\n".join(lines) + "\n"


def reasons(found: Sequence[Row]) -> list[str]:
    """The reasons of most operators."""
    counts: Counter[str] = Counter()
    for row in found:
        counts.update({k.removeprefix("refused: ") for k in row.found if k.startswith("refused")})
    return [f"- {n} operators: {k}" for k, n in counts.most_common(12)]


def main() -> int:
    warnings.simplefilter("ignore")

    def names(asked: Sequence[str]) -> list[str]:
        return [n for n in operators() if not asked or {n, n.partition(" ")[0]} & {*asked}]

    return rows.run(__doc__, Row, names, measure, page)


if __name__ == "__main__":
    raise SystemExit(main())
