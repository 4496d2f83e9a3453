"""The same judge without pytest: `python -m unittest discover tests`."""

import unittest

from kernels import softmax
from verax.testing.unittest_mixin import JudgeMixin


class SoftmaxTest(JudgeMixin, unittest.TestCase):
    def test_rows_of_several_blocks(self):
        for seed in (4, 5):
            with self.subTest(seed=seed):
                x = self.drawInputs(x=(5, 150), seed=seed)
                self.assertCorrect(softmax, "Softmax(axis=-1)", x)

    def test_the_wrong_axis_is_found(self):
        x = self.drawInputs(x=(5, 150), seed=6)
        with self.assertRaisesRegex(AssertionError, "axis"):
            self.assertCorrect(lambda x: softmax(x.T).T, "Softmax(axis=-1)", x)


if __name__ == "__main__":
    unittest.main()
