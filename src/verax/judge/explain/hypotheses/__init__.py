"""Rival meanings of an operator: what people and compilers get wrong, one file per family.

A hypothesis says how a wrong implementation would have computed the node: with other attributes,
from edited inputs, or with something done to the result. It is data; `judge.explain` evaluates it
in float64 with the rival's own rounding, and keeps it when the subject's numbers fit. A family only
lists; it never looks at tolerances.
"""
