"""Passes of a user's own, from a file: `--inject FILE.py`. This runs the user's code.

The file defines one `Pass` or several; each runs right behind the passes that its `after` names,
or first of all without any, and takes the place of a pass of the same name. A pass from a file may
be wrong in every way: it is called through a wrapper that tells what fails in it, and that checks
what it returns.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError, VeraxError
from verax.base.process.scripts import run_file, script_error
from verax.base.storage.reading import plain_bytes
from verax.compiler.passes.base import Pass
from verax.ir import checker
from verax.ir.graph import Graph
from verax.records.trace import Rewrite, Trace, numbered

FORM = (
    "define a function (graph, limit=None) -> (graph, trace) with a docstring, and a line such as "
    "PASS = Pass(function, PassClass.reassociates, after=('fold_constants',)); docs/extend/pass.md"
)
_loaded: dict[tuple[str, str], tuple[Pass, ...]] = {}


def with_injected(pipeline: tuple[Pass, ...], files: Sequence[str]) -> tuple[Pass, ...]:
    """`pipeline` with the passes of `files` in their places. Raises `UsageError`."""
    for file in files:
        for own in passes_of(file):
            names = [p.name for p in pipeline]
            if own.name in names:
                at = names.index(own.name)
                pipeline = (*pipeline[:at], own, *pipeline[at + 1 :])
                continue
            strange = [name for name in own.after if name not in names]
            if strange:
                raise UsageError(
                    f"the pass {own.name!r} runs after {strange[0]!r}, and there is no such pass",
                    place=file,
                    next_step=f"choose from {', '.join(names)}",
                )
            at = max((names.index(name) + 1 for name in own.after), default=0)
            pipeline = (*pipeline[:at], own, *pipeline[at:])
    return pipeline


def passes_of(file: str) -> tuple[Pass, ...]:
    """The passes that a file defines, in their order; the file is run once for each content.

    Raises `UsageError` when it cannot be read, fails, or defines no pass.
    """
    path = Path(file)
    content = hashlib.sha256(plain_bytes(path, "file of the pass", next_step=FORM)).hexdigest()
    key = os.path.abspath(file), content
    if key not in _loaded:
        module = run_file(path, "the file of the pass", FORM)
        defined = [v for v in vars(module).values() if isinstance(v, Pass)]
        own = {id(p): p for p in defined if getattr(p.run, "__module__", "") == module.__name__}
        if not own:
            raise UsageError("the file defines no Pass", place=file, next_step=FORM)
        _loaded[key] = tuple(_guarded(p, str(path)) for p in own.values())
    return _loaded[key]


def _guarded(own: Pass, file: str) -> Pass:
    """The same pass; what it does wrong is told in words."""
    if not own.help.strip():
        raise UsageError(
            f"the pass {own.name!r} has no docstring, which is its help text",
            place=file,
            next_step=FORM,
        )

    @functools.wraps(own.run)
    def run(graph: Graph, limit: int | None = None, **more: Any) -> tuple[Graph, Trace]:
        failing = f"the pass {own.name!r} fails"
        try:
            result: Any = own.run(graph, limit, **more)
        except VeraxError as error:
            raise UsageError(f"{failing}: {error}", place=file) from error
        except (Exception, SystemExit) as error:
            raise script_error(error, file, failing, FORM) from error
        is_pair = isinstance(result, tuple) and len(result) == 2
        if not is_pair or not isinstance(result[0], Graph) or not isinstance(result[1], Trace):
            raise UsageError(
                f"the pass {own.name!r} returns a {type(result).__name__}, not (graph, trace)",
                place=file,
                next_step="return what Rewriter.finish() gives",
            )
        new, trace = result
        if limit is not None and trace.rewrites > limit:
            raise UsageError(
                f"the pass {own.name!r} does {trace.rewrites} rewrites where {limit} are allowed",
                place=file,
                next_step="ask rewriter.spent before each, so that a search can stop it",
            )
        try:
            checker.check(new)
        except VeraxError as error:
            raise UsageError(
                f"the pass {own.name!r} makes a graph that is none: {error}", place=file
            ) from error
        records = numbered(
            one if one.pass_name == own.name else _owned(one, own.name) for one in trace.records
        )
        return new, dataclasses.replace(trace, records=records)

    return dataclasses.replace(own, run=run)


def _owned(one: Rewrite, name: str) -> Rewrite:
    """A rewrite that did not say which pass did it, under the name of the pass."""
    subject = one.id.removeprefix(f"{one.pass_name}@")
    text = f"{one.pass_name}: {one.text}" if one.text else one.pass_name
    return Rewrite(f"{name}@{subject}", name, one.nodes, one.values, text)
