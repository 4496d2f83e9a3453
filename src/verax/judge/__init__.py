"""The judge: says of every number a subject gives whether it is rounding or a mistake, and where.

It knows operators by their meaning only and nothing of our compiler, so that its word can be
trusted on the compiler too. Subjects reach it through `protocol.Runner`.

criterion.py  numbers only: an error, its sigma and its bound -> a decision
local.py      one node on its actual inputs
region.py     several nodes between known values, by Monte Carlo arithmetic
network.py    a whole network cut at every value that the subject shows
check.py      runs the subject, watches it, and assembles the Verdict
"""

from verax.judge.check import check
from verax.judge.inputs import draw_inputs
from verax.judge.protocol import Runner

__all__ = ["Runner", "check", "draw_inputs"]
