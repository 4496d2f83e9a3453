"""Accuracy as users measure it: a network on labeled samples, alone or against another one.

Samples and labels are read (`data`, `labels`), run in batches and noted as they are done
(`evaluate`, `journal`), counted (`figures`), and each sample on which two implementations choose
differently is put to the judge: does rounding explain it (`flips`)? `metric` runs the user's code.
"""

from verax.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
