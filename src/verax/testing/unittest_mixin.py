"""`JudgeMixin`: the judge in a `unittest.TestCase`, without pytest.

    class TestProduct(JudgeMixin, unittest.TestCase):
        def test_a_long_row(self):
            self.assertCorrect(product, "MatMul", self.drawInputs(a=(3, 1000), b=(1000, 7)))

Methods are spelled as unittest's own are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from verax.records.verdict import Verdict
from verax.testing.assertions import assert_correct
from verax.testing.drawn_inputs import Shape, draw
from verax.testing.kept_records import keep

FOLDER = "VERAX_RECORDS"
"""Environment variable: the folder in which records are kept. Without it none are."""


class JudgeMixin:
    """Assertions of a test case; put it before `unittest.TestCase`."""

    _judgements = 0

    def id(self) -> str:
        """The test's name, which `unittest.TestCase` has."""
        return super().id()  # type: ignore[misc]

    def assertCorrect(self, actual: Any, meaning: Any, inputs: Any, **options: Any) -> Verdict:
        """Fail unless what `actual` gives is right; arguments as of `assert_correct`."""
        __tracebackhide__ = True
        return self._judged(assert_correct, actual, meaning, inputs, options)

    def assertGradients(self, function: Any, meaning: Any, inputs: Any, **options: Any) -> Verdict:
        """Fail unless the gradients of `function` are right; arguments as of `assert_gradients`."""
        __tracebackhide__ = True
        assertion = import_module("verax.testing.gradients").assert_gradients  # imports PyTorch
        return self._judged(assertion, function, meaning, inputs, options)

    def drawInputs(
        self,
        meaning: Any = None,
        *,
        seed: int = 0,
        dtype: Any = "float32",
        library: str = "numpy",
        **shapes: Shape,
    ) -> Any:
        """Inputs of a model, or arrays by name and shape; as `verax.testing.drawn_inputs.draw`."""
        return draw(meaning, shapes, seed=seed, dtype=dtype, library=library)

    def _judged(
        self, assertion: Callable[..., Any], actual: Any, meaning: Any, inputs: Any, options: Any
    ) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(2)
        location = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        verdict = None
        try:
            verdict = assertion(actual, meaning, inputs, **options)
            return verdict
        except AssertionError as error:
            verdict = getattr(error, "verdict", None)
            raise
        finally:
            folder = os.environ.get(FOLDER)
            if folder and isinstance(verdict, Verdict):
                self._judgements += 1
                facts = {"test": self.id(), "called at": location}
                keep(Path(folder), verdict, self.id(), self._judgements, facts)
