"""What the fixture `judge` is: it asserts, keeps the record, and notes the row for summaries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from verax.base.errors import VeraxError
from verax.pytest_plugin.marker import MarkedCase
from verax.records.verdict import Verdict
from verax.testing.assertions import assert_correct
from verax.testing.drawn_inputs import Shape, draw, has_inputs
from verax.testing.kept_records import judgement_of, keep


class Judge:
    """The judge of one test.

    seed, shapes: of this run of the test, as `@pytest.mark.verax` says; 0 and none without it.
    """

    def __init__(
        self, item: pytest.Item, case: MarkedCase, folder: Path, rows: list[dict[str, Any]]
    ) -> None:
        self.seed, self.shapes = case.seed, case.shapes
        self._item, self._folder, self._rows = item, folder, rows
        self._count = 0

    def __call__(self, actual: Any, meaning: Any, inputs: Any = None, **options: Any) -> Verdict:
        """The verdict on what `actual` gives on `inputs`, which fails the test when it is wrong.

        actual: a function of the inputs, or its results: an array, several in order or by name.
        meaning: what they should be: an operator ("Softmax(axis=1)"), a model or its path, a
        function of NumPy's, PyTorch's or JAX's arrays. inputs: by name or in order; drawn by
        `inputs` when not given. options: of `verax.assert_correct`; the seed is this test's unless
        it is among them.
        """
        __tracebackhide__ = True
        return self._judged(assert_correct, actual, meaning, inputs, options)

    def gradients(self, function: Any, meaning: Any, inputs: Any = None, **options: Any) -> Verdict:
        """The verdict on the vector-Jacobian products of `function`; arguments as of
        `verax.assert_gradients`, inputs drawn when they are not given."""
        __tracebackhide__ = True
        assertion = import_module("verax.testing.gradients").assert_gradients  # imports PyTorch
        return self._judged(assertion, function, meaning, inputs, options)

    def inputs(
        self,
        meaning: Any = None,
        *,
        dtype: str | Mapping[str, str] = "float32",
        library: str = "numpy",
        **shapes: Shape,
    ) -> Any:
        """Inputs drawn by this test's seed: of a model by its declared types; without one by
        `shapes` (name=(3, 5)), or the marker's. By name, or a tuple where shapes have no names.

        dtype: of all, or by name. library: whose arrays, "numpy" or "torch". Raises `UsageError`.
        """
        __tracebackhide__ = True
        try:
            return draw(
                meaning, shapes or self.shapes, seed=self.seed, dtype=dtype, library=library
            )
        except VeraxError as error:
            raise error.with_traceback(None) from None

    def _judged(
        self,
        assertion: Callable[..., Any],
        actual: Any,
        meaning: Any,
        inputs: Any,
        options: Mapping[str, Any],
    ) -> Any:
        """What an assertion returns or raises; the record is kept and a row noted either way."""
        __tracebackhide__ = True
        caller = sys._getframe(2)
        location = (caller.f_code.co_filename, caller.f_lineno)
        if inputs is None:
            inputs = self.inputs(meaning if has_inputs(meaning) else None)
        try:
            verdict = assertion(actual, meaning, inputs, **{"seed": self.seed, **options})
        except AssertionError as error:
            self._note(getattr(error, "verdict", None), location, error)
            raise error.with_traceback(None) from None
        except VeraxError as error:
            raise error.with_traceback(None) from None
        self._note(verdict, location, None)
        return verdict

    def _note(
        self, verdict: Any, location: tuple[str, int], failure: AssertionError | None
    ) -> None:
        """Keep the record, and the row that reports and summaries take up."""
        test = self._item.nodeid
        row = judgement_of(verdict, test, location, failure).to_dict()
        if isinstance(verdict, Verdict):
            self._count += 1
            facts = {"test": test, "called at": f"{location[0]}:{location[1]}"}
            row["record"] = str(keep(self._folder, verdict, test, self._count, facts))
        self._rows.append(row)
        path, root = Path(row["record"]), self._item.config.rootpath
        properties = {
            "verax.verdict": row["verdict"],
            "verax.error_over_allowed": "" if row["used"] is None else f"{row['used']:.6g}",
            "verax.record": str(path.relative_to(root) if path.is_relative_to(root) else path)
            if row["record"]
            else "",
        }
        self._item.user_properties += properties.items()
