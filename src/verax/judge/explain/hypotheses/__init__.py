"""Hypotheses on faulty operators: what people and compilers get wrong, one file per family.

A hypothesis says how a wrong implementation would have computed the node: with other attributes,
from edited inputs, or with a changed result. It is data; `judge.explain` evaluates it in float64
with its own rounding, and keeps it when the subject's numbers fit. A family only lists hypotheses;
it uses no tolerances.
"""
