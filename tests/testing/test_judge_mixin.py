"""`JudgeMixin` in plain unittest: no pytest, failures that say why, records on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from verax.records.verdict import Kind, Verdict

CASES = """
import sys
import unittest

import numpy as np

from verax.testing.unittest_mixin import JudgeMixin


class Products(JudgeMixin, unittest.TestCase):
    def test_right(self):
        inputs = self.drawInputs(a=(3, 50), b=(50, 7), seed=4)
        self.assertCorrect(np.matmul, "MatMul", inputs)
        self.assertCorrect(np.exp, "Exp", self.drawInputs(x=(4, 5)))
        self.assertFalse({"pytest", "torch", "onnx"} & set(sys.modules))

    def test_wrong(self):
        inputs = self.drawInputs(a=(3, 50), b=(50, 7), seed=4)
        self.assertCorrect(lambda a, b: a[:, :48] @ b[:48], "MatMul", inputs)


if __name__ == "__main__":
    unittest.main()
"""


def test_a_wrong_product_fails_and_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_products.py").write_text(CASES)
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "test_products"],
        cwd=tmp_path,
        env={**os.environ, "VERAX_RECORDS": "kept"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "FAILED (failures=1)" in done.stderr and "Ran 2 tests" in done.stderr, done.stderr
    assert "FAIL: test_wrong" in done.stderr and "the last 2 of 50 terms" in done.stderr
    records = [Verdict.from_json(p.read_text()) for p in (tmp_path / "kept").glob("*.json")]
    kinds = sorted((r.subject["test"].rpartition(".")[2], r.kind) for r in records)
    assert kinds == [("test_right", Kind.rounding)] * 2 + [("test_wrong", Kind.mistake)]
    called = {r.subject["called at"].rpartition(":")[2] for r in records}
    assert called == {str(CASES.splitlines().index(x) + 1) for x in CASES.splitlines()
                      if "self.assertCorrect" in x}  # fmt: skip
